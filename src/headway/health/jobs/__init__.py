"""Jobs that hold GPUs and make no progress, and runs that a restart of the controller cut short."""
