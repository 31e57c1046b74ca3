"""GPUs behind one interface: the driver's library, a DCGM exporter, a simulation."""
