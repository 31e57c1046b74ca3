"""Stored data about people: roles, tokens, sessions, Linux users, idempotency keys, and the audit log."""
