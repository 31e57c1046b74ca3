"""How a fault is noticed: events of the nodes' agents, silence, probes."""
