"""Turns a script or a command into a submitted job: requested resources, checks, the batch script, files, lineage.

Not here: the flags of `headway run` (`schemas.submission`)."""
