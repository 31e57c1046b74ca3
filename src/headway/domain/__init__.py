"""Frozen types that every other package may use: clusters, machines, changes, jobs. They do no I/O, and their rules
need only the values themselves."""
