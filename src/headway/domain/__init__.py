"""Frozen types that every other package may use: what a cluster, a machine, a change, a job is. No I/O and no rules that need
more than the values themselves."""
