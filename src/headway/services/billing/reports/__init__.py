"""Reports of what GPU time was used for: usage, runs, goodput, losses, capacity, fragmentation, energy, checkpoints. Bills,
budgets and notices are in `headway.services.billing`."""
