"""Headway: one YAML file becomes a self-healing Slurm GPU cluster on machines you own."""

__version__ = "0.1.0"
