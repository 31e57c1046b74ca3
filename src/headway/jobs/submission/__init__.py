"""Turns a script or a command into a submitted job: its resources, checks, script and lineage."""
