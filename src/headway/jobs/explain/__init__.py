"""Explains why a job waits or failed, and what sbatch's errors mean. Pure."""
