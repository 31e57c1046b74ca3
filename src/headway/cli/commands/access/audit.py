"""audit: exports and verifies the audit trail. For admins."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headway.cli import common
from headway.cli.output.formatting import plural
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import Refused

app = typer.Typer(
    help="Export and verify the audit trail.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


class Export(StrEnum):
    """The format of an exported audit trail."""

    jsonl = "jsonl"
    csv = "csv"


@app.command()
def export(
    person: Annotated[str, typer.Option("--person", help="Only actions of this person.")] = "",
    action: Annotated[str, typer.Option("--action", help="Only this action, or actions that start with it.")] = "",
    target: Annotated[
        str, typer.Option("--target", help="Only this target, or targets that start with it, such as a cluster.")
    ] = "",
    form: Annotated[Export, typer.Option("--format", help="Output format.")] = Export.jsonl,
) -> None:
    """Export the audit trail, oldest first: who did what, from where, when, and the result.

    headway audit export --person ann --format csv > audit.csv"""
    filters = {"person": person, "action": action, "target": target, "format": form.value}
    for piece in common.connect().people.audit_trail({name: word for name, word in filters.items() if word}):
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()


@app.command()
def verify(
    file: Annotated[
        Path | None, typer.Argument(metavar="[EXPORT]", help="Earlier export (JSON lines) to compare with.")
    ] = None,
    output: Output = Format.table,
) -> None:
    """Check the hash chain of the audit trail. The exit status is 1 if a line was changed, inserted or removed.

    Lines removed from the end, or replaced together with all hashes after them, show only against an earlier export.

    headway audit verify
    headway audit verify audit.jsonl"""
    number, known_hash = _last_line(file) if file else (0, "")
    found = common.connect().people.verify_audit(number, known_hash)
    if output is Format.json:
        print_json(found)
    elif found.broken_at:
        common.print_line(f"The audit trail does not match its hashes from line {found.broken_at} on: {found.fault}.")
        common.print_line("Compare it with a backup of the server, or with what was exported to a log server.")
    else:
        common.print_line(f"The audit trail is intact: {plural(found.lines, 'line')}.")
        common.print_line(f"The last is line {found.number}, hash {found.hash}")
        if file:
            common.print_line(f"Line {number} has the hash that {file} has.")
    if found.broken_at:
        raise typer.Exit(1)


def _last_line(file: Path) -> tuple[int, str]:
    """Returns number and hash of the latest line of an export. Raises Refused if the file holds none."""
    from headway.sdk.cluster_file import read_text_file

    hint = "give a file made by: headway audit export > audit.jsonl"
    latest = (0, "")
    for place, text in enumerate(read_text_file(file, "the export").splitlines(), 1):
        try:
            line = json.loads(text)
            latest = max(latest, (int(line["number"]), str(line["hash"])))
        except (ValueError, KeyError, TypeError):
            raise Refused(f"{file}, line {place}: not a line of the audit trail", hint=hint) from None
    if not latest[0]:
        raise Refused(f"{file} has no line of the audit trail", hint=hint)
    return latest
