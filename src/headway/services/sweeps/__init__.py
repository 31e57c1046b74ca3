"""Sweeps: their start and what people ask of them, and the rounds that carry them out.

Not here: the file, the search and the decisions (`headway.jobs.sweeps`)."""
