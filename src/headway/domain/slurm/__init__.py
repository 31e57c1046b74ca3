"""Slurm's terms as types: accounts, host lists, job and node states, sbatch's options. The code that talks to Slurm is
in `headway.slurm`."""
