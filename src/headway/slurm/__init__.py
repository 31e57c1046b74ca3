"""Builds all Slurm commands and reads Slurm: slurmrestd, squeue, sacct, sacctmgr, scontrol.

Not here: types of the results (`domain.slurm`), what is done with them (its callers), Slurm's configuration
(`render.slurm`)."""
