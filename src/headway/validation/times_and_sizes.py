"""Parsing of times in Slurm's forms, such as 2-12:00:00, and of sizes, such as 1.5 TiB."""

from __future__ import annotations

import re

LONGEST_TIME_S = 3650 * 86400
_TIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,4}))?(?::(\d{1,4}))?")
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?([MGTP])iB")


def parse_size(text: str) -> int:
    """Returns the bytes of a size such as 100 GiB or 1.5 TiB, a multiple of 1,024. Raises ValueError with a message for
    the user."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("is not a size")
    kib = int(float(match[1]) * 1024 ** " MGTP".index(match[2]))
    if kib < 1024:
        raise ValueError("must be at least 1 MiB")
    return kib * 1024


def parse_time(value: str | int) -> int | None:
    """Returns the seconds of a time in Slurm's forms; None = unlimited. A whole number is minutes.

    Forms: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS, infinite. Raises ValueError with a message for the user.
    """
    text = str(value).strip()
    if text.lower() in ("infinite", "unlimited"):
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("is not a time")
    days, first, second, third = match.groups()
    if days is not None:
        seconds = int(days) * 86400 + int(first) * 3600 + int(second or 0) * 60 + int(third or 0)
    elif third is not None:
        seconds = int(first) * 3600 + int(second) * 60 + int(third)
    elif second is not None:
        seconds = int(first) * 60 + int(second)
    else:
        seconds = int(first) * 60
    if seconds <= 0:
        raise ValueError("must be longer than 0")
    if seconds > LONGEST_TIME_S:
        raise ValueError('is longer than ten years; write "infinite" for no limit')
    return seconds
