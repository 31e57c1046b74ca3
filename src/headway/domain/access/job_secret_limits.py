"""Limits of the secrets of jobs: names, number, and size of values. Pure."""

from __future__ import annotations

NAME_PATTERN = r"[A-Za-z][A-Za-z0-9_.-]{0,63}"  # the same as in node/agent/jobs/secret_files.py
MOST_PER_JOB = 16
MOST_PER_OWNER = 100
MOST_FORMER_PER_OWNER = 100  # replaced and removed ones, which stay masked in logs
MIN_BYTES = 8  # shorter values can't be masked in logs, where they occur by chance
MAX_BYTES = 16 * 1024


def value_fault(value: str) -> str:
    """Returns why a text can't be the value of a secret, "" if it can. The text does not contain the value."""
    size = len(value.encode())
    if size < MIN_BYTES:
        return f"the value has {size} bytes; a secret has at least {MIN_BYTES}, so that it can be masked in logs"
    if size > MAX_BYTES:
        return f"the value has {size} bytes; a secret has at most {MAX_BYTES}"
    return ""
