"""audit: prints the audit trail. For admins."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from headway.cli import common


class Export(StrEnum):
    jsonl = "jsonl"
    csv = "csv"


def audit(
    person: Annotated[str, typer.Option("--person", help="Only actions of this person.")] = "",
    action: Annotated[str, typer.Option("--action", help="Only this action, or actions that start with it.")] = "",
    target: Annotated[
        str, typer.Option("--target", help="Only this target, or targets that start with it, such as a cluster.")
    ] = "",
    form: Annotated[Export, typer.Option("--format", help="Output format.")] = Export.jsonl,
) -> None:
    """Export the audit trail, oldest first: who did what, from where, when, and the result.

    headway audit --person ann --format csv > audit.csv"""
    filters = {"person": person, "action": action, "target": target, "format": form.value}
    for piece in common.connect().people.audit_trail({name: word for name, word in filters.items() if word}):
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()
