"""The ledger: collects usage from Slurm, the provider and Prometheus into `store.billing`, and computes daily sums.

Not here: prices and invoices (`services.billing`)."""
