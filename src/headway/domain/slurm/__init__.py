"""Slurm's terms as types: accounts, host lists, states of jobs and nodes, options of sbatch.

Not here: commands and requests to Slurm (`headway.slurm`)."""
