"""Answers that are printed as a table, JSON or CSV."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.common import Format
from headway.cli.output import tables

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sheet(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"


SheetOutput = Annotated[
    Sheet, typer.Option("-o", "--output", help="Output format: table, json or csv.", show_default=False)
]
Month = Annotated[str, typer.Option("--period", "-p", metavar="YYYY-MM", help="Month (default: the current one).")]


def print_rows(columns: Sequence[tables.Column], rows: Sequence[Sequence[tables.Cell]]) -> None:
    """Prints a table; prints nothing without rows."""
    if rows:
        tables.print_table(columns, rows)


def print_for_programs(found: Any, output: Sheet | Format) -> bool:
    """Prints JSON or CSV and returns True; returns False when a table is to be printed."""
    if output.value == "json":
        common.print_json(found)
    elif output.value == "csv":
        from headway.schemas import report_csv

        sys.stdout.write(report_csv.to_csv(found))
    return output.value != "table"
