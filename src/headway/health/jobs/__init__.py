"""Finds and requeues jobs that use GPUs without progress, and short runs that a restart of the controller killed.

Not here: faults of nodes (`health.incidents`)."""
