"""HTTP details that endpoints share: errors, pagination, compression, idempotency keys, streams."""
