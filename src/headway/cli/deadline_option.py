"""--deadline: how long jobs may go on where nodes go."""

from __future__ import annotations

from typing import Annotated

import typer

Deadline = Annotated[
    str,
    typer.Option(
        "--deadline",
        metavar="TIME",
        help="Jobs on nodes that go may go on so long, then they are requeued. A number is minutes; 0: at once.",
    ),
]


By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="TIME",
        help="Jobs on nodes whose turn it is may go on so long (2h, 30m), then they are requeued.",
    ),
]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_by(text: str) -> int | None:
    """Seconds of --by; None when it was not said."""
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isascii() and number.isdigit() and len(number) < 7:
        seconds = int(number) * _UNITS[unit]
        if seconds > 604_800:
            raise typer.BadParameter("--by is 7 days at most")
        return seconds
    try:
        return parse_deadline(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(str(error).replace("--deadline", "--by")) from None


def parse_deadline(text: str) -> int | None:
    """Seconds of --deadline; None when it was not said."""
    from headway.validation.syntax_rules import parse_time

    if not text:
        return None
    if text == "0":
        return 0
    try:
        seconds = parse_time(text)
    except ValueError as error:
        raise typer.BadParameter(f"--deadline {error}; for example 10 (minutes) or 02:00:00") from None
    if seconds is None or seconds > 604_800:
        raise typer.BadParameter("--deadline is 7 days at most")
    return seconds
