"""Jobs of users: submission, reasons to wait, logs, progress, pipelines. All requests run as the job's user with
Slurm's own programs.

Not here: argument lists of Slurm commands (`headway.slurm`), rights (`services.jobs`)."""
