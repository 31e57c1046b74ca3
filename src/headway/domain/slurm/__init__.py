"""Slurm's terms as types: accounts, host lists, states of jobs and nodes, options of sbatch. Commands and requests to
Slurm are in `headway.slurm`."""
