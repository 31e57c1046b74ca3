"""What every answer carries: errors, pages of lists, compression, idempotency keys, streams."""
