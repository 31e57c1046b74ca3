"""A ChangeSet as text: counts by kind, and every change that disturbs running work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.changeset_rows import DisturbingRow, disturbing_rows, kind_rows
from headway.cli.output.output_formats import Format, print_json
from headway.cli.output.terminal import Terminal, detect_terminal, display_width, paint, without_control_characters
from headway.domain.changeset import ASK_FROM, Disturbs
from headway.domain.slurm.hostlist import compress

if TYPE_CHECKING:
    from headway.schemas.clusters import ChangeOut, ChangeSetOut, DifferenceOut

_ASK = {str(d) for d in ASK_FROM}
_HARD = {str(Disturbs.JOBS), str(Disturbs.DATA)}
_DIFF_LINES = 12


def print_changeset(changes: ChangeSetOut, output: Format) -> None:
    """Prints the changes in the output format."""
    if output is Format.json:
        print_json(changes)
        return
    for line in changeset_lines(changes, detect_terminal()):
        common.print_line(line)


def changeset_lines(changes: ChangeSetOut, terminal: Terminal, *, diffs: bool = False) -> list[str]:
    """Returns the changes grouped by kind, then those that disturb running work; with `diffs` also the files' changes."""
    out = [paint(f"warning: {w.path + ': ' if w.path else ''}{w.message}", "warn", terminal) for w in changes.warnings]
    out += _different(changes.differences, terminal)
    if not changes.changes:
        return [*out, f"{changes.cluster}: nothing to change: {changes.why_empty or 'the cluster matches its file'}"]
    price = f", {changes.price_usd_per_hour} USD an hour" if changes.price_usd_per_hour else ""
    out.append(
        f"{paint(changes.cluster, 'bold', terminal)}: {formatting.plural(len(changes.changes), 'change')}{price}"
    )
    out += _counted(changes.changes, terminal)
    disturbing = disturbing_rows(changes.changes)
    if disturbing:
        out += ["", paint("These disturb running work:", "warn", terminal)]
        out += _disturbing(disturbing, terminal)
    if diffs:
        for change in changes.changes:
            out += _diff(change, terminal)
    return out


def _counted(changes: Sequence[ChangeOut], terminal: Terminal) -> list[str]:
    """Returns a table with a row per kind: count, machines, the strongest effect, and up to four objects."""
    rows: list[list[tables.Cell]] = []
    for row in kind_rows(changes):
        few = ", ".join(row.objects[:4]) + (f" and {len(row.objects) - 4} more" if len(row.objects) > 4 else "")
        style = "bad" if row.disturbs in _HARD else "warn" if row.disturbs in _ASK else "dim"
        rows.append([f"  {row.kind}", str(row.count), row.where, (row.effect, style), (few, "dim")])
    columns = [
        tables.Column("  WHAT"), tables.Column("COUNT", right=True), tables.Column("WHERE", shrink=True),
        tables.Column("EFFECT"), tables.Column("THINGS", shrink=True, drop_order=1),
    ]  # fmt: skip
    return tables.table_lines(columns, rows, terminal)


def _different(found: Sequence[DifferenceOut], terminal: Terminal) -> list[str]:
    """Returns a table of differences between the plan and the machines, equal ones in one row."""
    if not found:
        return []
    alike: dict[tuple[str, str, str], list[str]] = {}
    for change in found:
        alike.setdefault((change.what, change.plan, change.found), []).append(change.machine)
    rows: list[list[tables.Cell]] = [
        [f"  {what}", plan, there, compress(names)] for (what, plan, there), names in alike.items()
    ]
    columns = [
        tables.Column("  WHAT"),
        tables.Column("PLAN"),
        tables.Column("FOUND"),
        tables.Column("WHERE", shrink=True),
    ]
    return [
        "The machines differ from the plan; Slurm is configured with the values found:",
        *tables.table_lines(columns, rows, terminal),
        "",
    ]


def _disturbing(rows: Sequence[DisturbingRow], terminal: Terminal) -> list[str]:
    """Returns a line per change; the same change on several machines is one line."""
    out = []
    for row in rows:
        style = "bad" if row.disturbs in _HARD else "warn"
        reason = f" ({without_control_characters(row.why)})" if row.why else ""
        first, second = f"  {without_control_characters(row.subject)}:", f"{row.disturbs}{reason}"
        fits = terminal.width is None or display_width(f"{first} {second}") <= terminal.width
        effect = f"{paint(row.disturbs, style, terminal)}{reason}"
        out += [f"{first} {effect}"] if fits else [first, f"    {effect}"]
    return out


def _diff(change: ChangeOut, terminal: Terminal) -> list[str]:
    if not change.diff:
        return []
    shown = change.diff[:_DIFF_LINES]
    out = ["", paint(f"{change.where}: {change.what}", "bold", terminal)]
    styles = {"+": "good", "-": "bad"}
    out += [paint(f"  {without_control_characters(line)}", styles.get(line[:1], "dim"), terminal) for line in shown]
    if len(change.diff) > len(shown):
        out.append(f"  and {len(change.diff) - len(shown)} more lines")
    return out
