"""Prints what of a job a conversion has lost or changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli import common
from headway.cli.output import tables
from headway.cli.output.terminal import detect_terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.convert.job_description import Loss

_STYLES = {"lost": "bad", "changed": "warn", "same": "dim"}


def print_losses(losses: Sequence[Loss], *, show_all: bool) -> None:
    """Prints a table on standard error; with `show_all` also what the target does without being asked."""
    shown = [loss for loss in losses if show_all or loss.outcome != "same"]
    if not losses:
        common.print_note("everything is carried")
        return
    columns = [
        tables.Column("WHERE"), tables.Column("IN THE FILE", shrink=True), tables.Column("RESULT"),
        tables.Column("WHY", shrink=True, min_width=24), tables.Column("INSTEAD", shrink=True, min_width=24),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [loss.where, loss.text, (loss.outcome, _STYLES[loss.outcome]), loss.why, loss.remedy] for loss in shown
    ]
    for line in tables.table_lines(columns, rows, detect_terminal()) if rows else ():
        common.print_note(line)
    counts = {outcome: sum(1 for loss in losses if loss.outcome == outcome) for outcome in _STYLES}
    words = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    hint = " (--all lists them)" if counts["same"] and not show_all else ""
    common.print_note(f"{', '.join(words)}{hint}; the rest is carried")
