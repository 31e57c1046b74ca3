"""Detection of faults: events of the nodes' agents, missing heartbeats, probes."""
