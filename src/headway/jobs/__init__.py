"""Jobs of users: submission, reasons to wait, progress, logs. Jobs are submitted, cancelled and read as the user,
with Slurm's own programs."""
