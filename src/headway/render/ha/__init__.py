"""Files for a second head: they place Slurm's state folder and prevent two active controllers."""
