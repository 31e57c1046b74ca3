"""Turns a script or a command into a submitted job: requested resources, checks, the batch script, files, lineage.
Flags of `headway run` are fields in `schemas.submission`."""
