"""Stored data about submitted jobs, pipelines and notebooks."""
