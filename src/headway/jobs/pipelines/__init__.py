"""Pipelines: the file, and its steps as jobs with dependencies."""
