"""Rolls a new node image or another Slurm version out on a running cluster."""
