"""Builds all Slurm commands and reads Slurm: slurmrestd, squeue, sacct, sacctmgr, scontrol. Types of the results are in
`domain.slurm`; callers decide what to do."""
