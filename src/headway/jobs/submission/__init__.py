"""From a script or a command to a submitted job: what it asks for, whether it can be right, what is kept of it."""
