"""HTTP details that endpoints share: error answers, pagination, compression, idempotency keys, streams.

Not here: endpoints (`api.routers`), limits of the server's port (`server.request_head_limits`)."""
