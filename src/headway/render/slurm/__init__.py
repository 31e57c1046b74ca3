"""Slurm's configuration files and the programs that Slurm runs (prolog, epilog, power saving), and what a change of them
affects."""
