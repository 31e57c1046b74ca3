"""size: memory, layout, throughput and price of a training or a service of a model. No server is needed."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json, print_rows
from headway.errors import NotFound, Refused

_GB = 1e9


def size(
    rows: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE", help="Answer each row of a CSV file of trainings; - for standard input."),
    ] = None,
    output: Output = Format.table,
) -> None:  # fmt: skip
    """Predict throughput and memory of trainings, a row each, from their model, GPUs and layout.

    headway size --rows runs.csv -o json"""
    if rows is None:
        raise Refused("nothing to size", hint="give a file of trainings: headway size --rows runs.csv")
    _answer_rows(rows, output)


def _answer_rows(file: Path, output: Format) -> None:
    from headway.sizing.answered_rows import MAX_BYTES, answer_rows
    from headway.sizing.parameters import shipped_calibration

    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotFound(f"{file}: {error.strerror}", hint="name a CSV file of this machine") from None
    answers = answer_rows(data, str(file), shipped_calibration().parameters)
    if output is Format.json:
        print_json([asdict(answer) for answer in answers])
        return
    columns = [
        tables.Column("ROW", right=True), tables.Column("MODEL", shrink=True), tables.Column("TOKENS/S/GPU", right=True),
        tables.Column("BAND", right=True), tables.Column("GB/GPU", right=True), tables.Column("", shrink=True),
    ]  # fmt: skip
    print_rows(columns, [
        [
            str(one.row), one.model, "" if one.tok_s_gpu is None else f"{one.tok_s_gpu:,.0f}",
            "" if one.band is None else f"±{one.band:.0%}",
            "" if one.memory_bytes is None else f"{one.memory_bytes / _GB:.1f}",
            (one.error, "bad") if one.error else "" if one.fits else ("does not fit", "warn"),
        ]
        for one in answers
    ])  # fmt: skip
    failed = sum(bool(one.error) for one in answers)
    if failed:
        common.print_note(f"{formatting.plural(failed, 'row')} of {len(answers)} can't be answered")
