"""Machines and Slurm daemons of one cluster: observes their state, applies changes, checks readiness, deletes the
cluster.

Not here: the text of files (`headway.render`), differences (`headway.changes`), faults (`headway.health`)."""
