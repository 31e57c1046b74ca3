"""The queue of a cluster, for API and pages: its columns, the query, search and order, and why jobs wait.

Not here: reading Slurm (`server.slurm_poller`), actions on jobs (`services.jobs`)."""
