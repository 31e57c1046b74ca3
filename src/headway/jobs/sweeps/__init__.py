"""Sweeps: parses the file, chooses parameters of trials, and decides which trials stop early and when a sweep ends. Pure.

Not here: stored sweeps (`store.jobs`), their start and their rounds (`services.sweeps`)."""
