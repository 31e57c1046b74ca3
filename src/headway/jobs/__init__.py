"""Jobs of users: submission, reasons to wait, logs, progress, pipelines. All requests run as the job's user with
Slurm's own programs. Argument lists of Slurm commands are built in `headway.slurm`."""
