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


def deadline_of(text: str) -> int | None:
    """Seconds of --deadline; None when it was not said."""
    from headway.spec.words import parse_time

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
