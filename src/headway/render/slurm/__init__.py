"""Slurm's configuration files and the programs that Slurm runs (prolog, epilog, power saving), and the effects of a
changed slurm.conf."""
