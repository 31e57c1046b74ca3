"""The process that reads one cluster's Slurm, and the server's end of it."""
