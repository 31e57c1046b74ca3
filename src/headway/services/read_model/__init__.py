"""The snapshot of each cluster in memory, and the lists made from it. Slurm is read once for all requests."""
