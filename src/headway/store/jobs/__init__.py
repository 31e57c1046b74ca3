"""Stored data about submitted jobs, pipelines and notebooks.

Not here: usage of ended jobs (`store.billing`); jobs in the queue are read from Slurm (`headway.slurm`)."""
