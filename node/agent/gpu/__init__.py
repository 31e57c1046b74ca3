"""GPUs behind one interface: the driver's library, a DCGM exporter, a simulation.

Not here: judgements about what they report (`node/agent/checks`)."""
