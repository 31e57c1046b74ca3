"""Replaces the machines of a running cluster by machines of another node image or Slurm version. The images are built
in `headway.images`."""
