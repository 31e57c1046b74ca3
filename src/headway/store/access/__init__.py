"""Stored data about people: roles, tokens, sessions, Linux users, idempotency keys, and the audit trail.

Not here: secrets of jobs (`store.clusters`), what a role allows (`services.access`)."""
