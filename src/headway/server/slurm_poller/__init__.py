"""The process that reads Slurm of one cluster, and its client in the server."""
