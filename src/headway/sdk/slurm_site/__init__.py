"""Reads the configuration of a Slurm site: from a folder, or from its head over SSH. Read only.

Not here: what becomes of it (`headway.slurm_import`)."""
