"""The snapshot of each cluster in memory, and the lists that are made of it. Slurm is read once for everybody."""
