"""What Headway reads from Slurm and tells it: every argv of a Slurm program, and slurmrestd. Nothing here decides."""
