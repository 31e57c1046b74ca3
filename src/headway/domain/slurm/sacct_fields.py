"""Parses fields that sacct prints."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)[nc]?$")
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}


def parse_whole(text: str) -> int:
    """Returns a whole number of at most nine digits; 0 for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else 0


def parse_time(text: str) -> float:
    """Returns Unix seconds, of a number or of a time without a zone, which is read as UTC; 0 for none."""
    if re.fullmatch(r"[0-9]{1,12}", text):
        return float(text)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def parse_mebibytes(text: str) -> int:
    """Returns MiB of an amount of memory such as 16G, 4000Mc; 0 for any other text."""
    match = _MEMORY.match(text)
    return int(float(match[1]) * _MIB[match[2]]) if match else 0
