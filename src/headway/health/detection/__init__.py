"""Finds faults: events of the nodes' agents, missing heartbeats, probes over SSH. `health.policy` decides what
follows."""
