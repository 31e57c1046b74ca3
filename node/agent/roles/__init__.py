"""The agent's programs: on a node, on a head, for the server's stream of events, and for slurmctld's power requests.

Not here: the parts that they start (`node/agent`)."""
