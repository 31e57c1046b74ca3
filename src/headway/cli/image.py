"""image: the node images that local machines are made from. Works on this machine, without the server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from headway.cli import session, show
from headway.cli.follow import STEP_WIDTH
from headway.cli.session import Format, Output

T = TypeVar("T")

app = typer.Typer(
    help="Build, list and remove node images.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="debian13 or debian12.")]


@app.command()
def build(name: Name = "debian13", output: Output = Format.table) -> None:
    """Build a node image, unless one of the same inputs is there."""
    from headway.machines import image

    started = time.monotonic()

    async def say(step: str, text: str, *, level: str = "info", **_: object) -> None:
        mark = "" if level == "info" else f"{level}: "
        session.note(f"{time.monotonic() - started:7.1f}s  {step:<{STEP_WIDTH}}  {mark}{text}")

    built = _run(image.build(name, say))
    if output is Format.json:
        session.say(json.dumps(asdict(built), indent=2))
        return
    session.say(f"{built.tag} is there: Slurm {built.slurm_version}, {built.size_mib} MiB")


@app.command()
def ls(output: Output = Format.table) -> None:
    """List node images."""
    from headway.machines import image

    images = _run(image.list_images())
    if output is Format.json:
        session.say(json.dumps([asdict(i) for i in images], indent=2))
        return
    if not images:
        session.say("no node image yet; headway image build")
        return
    on = show.screen()
    columns = [
        show.Column("NAME"), show.Column("SLURM"), show.Column("SIZE", right=True), show.Column("BUILT", drop=2),
        show.Column("STATE"), show.Column("TAG", shrink=True, drop=1),
    ]  # fmt: skip
    rows: list[list[show.Cell]] = [
        [i.name, i.slurm_version, f"{i.size_mib} MiB", i.built,
         ("current", "good") if i.current else ("old inputs", "warn"), i.tag]
        for i in images
    ]  # fmt: skip
    for line in show.table(columns, rows, on):
        session.say(line)


@app.command()
def rm(name: Name) -> None:
    """Remove the node images of a name, old ones included. Running machines keep theirs."""
    from headway.machines import image

    for removed in _run(image.remove(name)):
        session.say(f"removed {removed}")


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
