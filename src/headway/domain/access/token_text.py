"""The text of an API token."""

from __future__ import annotations

import secrets

PREFIX = "hw_"
TOKEN_PATTERN = PREFIX + r"[A-Za-z0-9_-]{20,}"


def new_token_text() -> str:
    """Returns a new token: the prefix and 256 random bits."""
    return f"{PREFIX}{secrets.token_urlsafe(32)}"
