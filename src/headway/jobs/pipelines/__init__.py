"""Pipelines: parses the file and turns its steps into jobs with dependencies.

Not here: stored pipelines (`store.jobs`), the start of one (`services.jobs`)."""
