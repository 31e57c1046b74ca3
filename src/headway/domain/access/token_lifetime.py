"""How long a new API token is valid, and whether one still is. The store asks here each time a token is used."""

from __future__ import annotations

DEFAULT_TOKEN_DAYS = 90
MAX_TOKEN_DAYS = 36_500


def token_expiry(now: float, days: float | None) -> float | None:
    """Returns when a token that is made now expires, in unix seconds; None for one without end (`days` is None)."""
    return None if days is None else now + days * 86400


def token_is_valid(expires_at: float | None, now: float) -> bool:
    """Returns whether a token that expires then (unix seconds, None for never) is valid now."""
    return expires_at is None or expires_at > now
