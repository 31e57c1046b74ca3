"""Another node image, or another Slurm version, on a cluster that works."""
