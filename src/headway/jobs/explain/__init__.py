"""Explains why a job waits or failed, and what sbatch's errors mean. Pure.

Not here: reading the states that are explained (`headway.slurm`)."""
