"""Errors of the server's own database."""

from __future__ import annotations

from headway.errors import HeadwayError, Unreachable


class StoreUnavailable(HeadwayError):
    """The server's own database does not answer. It is not an Unreachable, because it says nothing about any machine: code that
    judges a machine by an error must not catch it (health.context.fault_text)."""

    exit_code = Unreachable.exit_code
    http_status = Unreachable.http_status
    kind = Unreachable.kind


class DatabaseLocked(StoreUnavailable):
    """Another program holds the database lock longer than the timeout."""


class CommitUnknown(StoreUnavailable):
    """The database did not answer a write in time, so it may or may not have been committed."""
