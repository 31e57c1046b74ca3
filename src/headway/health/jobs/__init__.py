"""Jobs that use GPUs without progress, and runs that a restart of the controller killed."""
