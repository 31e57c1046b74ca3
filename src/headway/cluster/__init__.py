"""Machines and Slurm daemons of one cluster: observes their state, applies changes, checks readiness, deletes the
cluster. Files are rendered in `headway.render`, differences found in `headway.changes`, faults handled in
`headway.health`."""
