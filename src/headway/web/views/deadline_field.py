"""The form field for the time that jobs may continue on nodes to be removed."""

from __future__ import annotations

from collections.abc import Iterable

from headway.errors import Refused
from headway.schemas.clusters import ChangeOut

MOST_MINUTES = 10_080


def deadline_s(typed: str) -> int | None:
    """Returns seconds; None for an empty field: no job is requeued. Raises Refused."""
    text = typed.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > MOST_MINUTES:
        raise Refused(f"{text[:20]!r} is not a number of minutes", hint=f"give 0 to {MOST_MINUTES}, or leave it empty")
    return int(text) * 60


def needs_deadline(changes: Iterable[ChangeOut]) -> bool:
    """Returns whether a node is removed, or its machine is replaced by another one."""
    return any(
        change.kind == "machine.delete" or (change.kind == "machine.create" and change.disturbs != "nothing")
        for change in changes
    )
