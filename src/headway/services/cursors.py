"""Cursors of paged lists: the sort key of a page's last row, as URL-safe text."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from headway.errors import Refused

MAX_NUMBER = 2**62  # databases accept no larger integers


def encode_cursor(key: tuple[Any, ...]) -> str:
    """Returns the cursor of the rows that follow the row with this key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """Returns the key that a cursor holds, checked to have values of `kinds` if any are given. Raises Refused for text
    that `encode_cursor` did not make."""
    try:
        key = tuple(json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise invalid_cursor() from None
    if kinds and [type(value) for value in key] != list(kinds):
        raise invalid_cursor()
    if any(type(value) is int and abs(value) > MAX_NUMBER for value in key):
        raise invalid_cursor()
    if kinds and any(type(value) is str and not value.isprintable() for value in key):  # a database may refuse it
        raise invalid_cursor()
    return key


def invalid_cursor() -> Refused:
    """Returns the error for a cursor that does not belong to this list."""
    return Refused("the cursor does not belong to this list", hint="leave the cursor out to begin at the top")
