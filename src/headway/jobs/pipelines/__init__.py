"""Pipelines: parses the file and turns its steps into jobs with dependencies."""
