"""Replaces the machines of a running cluster by machines of another node image or Slurm version, and changes GPU
drivers and GPU parts of nodes, a few nodes at a time.

Not here: building images (`headway.images`), repairs (`headway.health`)."""
