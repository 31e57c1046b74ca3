"""--deadline and --by: how long jobs may continue on nodes that are removed or updated."""

from __future__ import annotations

from typing import Annotated

import typer

Deadline = Annotated[
    str,
    typer.Option(
        "--deadline",
        metavar="TIME",
        help="Time until jobs on removed nodes are requeued: minutes, HH:MM:SS, or 0 for at once.",
    ),
]


By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="TIME",
        help="Time until jobs on a node to be rebuilt are requeued: 30m, 2h (default: wait for the jobs).",
    ),
]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_by(text: str) -> int | None:
    """Returns --by in seconds; None when it was not given. Raises BadParameter."""
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isascii() and number.isdigit() and len(number) < 7:
        seconds = int(number) * _UNITS[unit]
        if seconds > 604_800:
            raise typer.BadParameter("--by: the maximum is 7 days")
        return seconds
    try:
        return parse_deadline(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(str(error).replace("--deadline", "--by")) from None


def parse_deadline(text: str) -> int | None:
    """Returns --deadline in seconds; None when it was not given. Raises BadParameter."""
    from headway.validation.times_and_sizes import parse_time

    if not text:
        return None
    if text == "0":
        return 0
    try:
        seconds = parse_time(text)
    except ValueError as error:
        raise typer.BadParameter(f"--deadline {error}; for example 10 (minutes) or 02:00:00") from None
    if seconds is None or seconds > 604_800:
        raise typer.BadParameter("--deadline: the maximum is 7 days")
    return seconds
