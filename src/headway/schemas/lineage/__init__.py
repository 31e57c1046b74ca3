"""Lineage in answers: of one job, and the graph of models, jobs, datasets and services.

Not here: how it is found (`services.lineage`)."""
