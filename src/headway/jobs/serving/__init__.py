"""Services: parses the file, and decides which replicas start, are drained and end. Pure.

Not here: stored services (`store.jobs`), their start and their rounds (`services.serving`), the proxy itself
(`node/steer_proxy`)."""
