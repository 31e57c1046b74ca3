"""Jobs that a site's accounting has, as submissions for a rehearsal of its cluster.

Not here: reading accounting (`headway.sdk.slurm_site`), submitting (`node/programs/replay_jobs.py`). When a job starts, and
whether it may, is for Slurm to decide."""
