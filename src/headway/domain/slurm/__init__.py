"""Slurm's own terms as types: accounts, host lists, job and node states, sbatch's options. Nothing here talks to
Slurm; that is `headway.slurm`."""
