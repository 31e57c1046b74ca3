"""The output formats of commands: table and JSON, for reports also CSV."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.output import tables

if TYPE_CHECKING:
    from collections.abc import Sequence


class Format(StrEnum):
    """Output formats of most commands."""

    table = "table"
    json = "json"


class ReportFormat(StrEnum):
    """Output formats of reports."""

    table = "table"
    json = "json"
    csv = "csv"


class PlanFormat(StrEnum):
    """Output formats of a plan."""

    table = "table"
    json = "json"
    markdown = "markdown"


Output = Annotated[Format, typer.Option("-o", "--output", help="Output format: table or json.", show_default=False)]
ReportOutput = Annotated[
    ReportFormat, typer.Option("-o", "--output", help="Output format: table, json or csv.", show_default=False)
]
PlanOutput = Annotated[
    PlanFormat,
    typer.Option(
        "-o", "--output", help="Output format: table, json, or markdown for a pull request.", show_default=False
    ),
]


def print_rows(columns: Sequence[tables.Column], rows: Sequence[Sequence[tables.Cell]]) -> None:
    """Prints a table; prints nothing without rows."""
    if rows:
        tables.print_table(columns, rows)


def print_json(answer: Any) -> None:
    """Prints an API model, a dataclass, plain JSON data, or a sequence of these on standard output."""
    print(json.dumps(_json_data(answer), indent=2))  # noqa: T201


def _json_data(answer: Any) -> Any:
    if isinstance(answer, list | tuple):
        return [_json_data(item) for item in answer]
    if is_dataclass(answer) and not isinstance(answer, type):
        return asdict(answer)
    return answer.model_dump(mode="json") if hasattr(answer, "model_dump") else answer


def print_for_programs(found: Any, output: ReportFormat | Format) -> bool:
    """Prints JSON or CSV and returns True; returns False when a table is to be printed."""
    if output.value == "json":
        print_json(found)
    elif output.value == "csv":
        from headway.schemas.billing import models_as_csv

        sys.stdout.write(models_as_csv.to_csv(found))
    return output.value != "table"
