"""The graph of lineage: data and code -> job -> model -> service.

Not here: the record of one job's submission (`services.jobs.lineage`)."""
