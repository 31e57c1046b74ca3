"""Finds faults: events of the nodes' agents, missing heartbeats, probes over SSH.

Not here: what follows from a fault (`health.policy`)."""
