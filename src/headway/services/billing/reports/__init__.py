"""Reports of what GPU time was used for: usage, runs, goodput, losses, capacity, fragmentation, energy, checkpoints.

Not here: bills, budgets and notices (`services.billing`)."""
