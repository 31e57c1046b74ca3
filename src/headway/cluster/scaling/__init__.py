"""Which slots of a cluster have a machine, and how a machine joins or leaves a running cluster."""
