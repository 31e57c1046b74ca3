"""Machines: what one is, what it should have, what was seen on it. Slurm's nodes are in `domain.slurm`."""
