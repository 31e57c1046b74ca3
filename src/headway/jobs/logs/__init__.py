"""Reads logs of jobs: follows them as they grow, returns parts, searches.

Not here: who may read a log (`services.jobs`), logs of the server (`server.logging_config`)."""
