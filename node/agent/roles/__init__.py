"""What the agent does on a node, on a head, for the server and for slurmctld."""
