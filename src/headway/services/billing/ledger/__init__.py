"""The ledger: facts collected from Slurm, the provider and Prometheus, daily sums of them, and notices that are sent
once."""
