"""The ledger: facts collected from Slurm, the provider and Prometheus, daily sums of them, and what is told of them once."""
