"""Stored data about people: their tokens, sessions and Linux users, and the audit trail."""
