"""Jobs as users meet them: submission, reasons to wait, progress, logs. Submitted, cancelled and read as the user, through
Slurm's own programs."""
