"""HTTP details that endpoints share: error answers, pagination, compression, idempotency keys, streams. Endpoints are
in `api.routers`."""
