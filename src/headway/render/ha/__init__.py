"""Files that a second head needs: they place Slurm's state and prevent two active controllers."""
