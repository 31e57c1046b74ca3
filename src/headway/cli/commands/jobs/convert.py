"""convert: converts a job file of another scheduler. No server is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.output import tables
from headway.cli.output.terminal import detect_terminal
from headway.convert.formats import MAX_BYTES, Source, Target
from headway.errors import InvalidSpec, NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.convert.job_description import Loss

_STYLES = {"lost": "bad", "changed": "warn", "same": "dim"}


def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file; - for standard input.")],
    source: Annotated[
        Source | None,
        typer.Option("--from", metavar="FORMAT", help=f"Format of FILE, recognised by default: {', '.join(Source)}."),
    ] = None,
    target: Annotated[
        Target | None,
        typer.Option(
            "--to", metavar="FORMAT",
            help=f"Format to write: {', '.join(Target)}. Default: slurm; of a Slurm script jobset.",
        ),
    ] = None,
    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="Container image; overrides the file's.")] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help="Write to this file; default: standard output."),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list directives and fields that Slurm does not need."),
    ] = False,
) -> None:  # fmt: skip
    """Convert a job of PBS, LSF, Grid Engine, Kubernetes, SkyPilot, dstack or SageMaker to a batch script for Slurm.

    With --to it also writes Kubernetes' JobSet and RayJob, for example of a Slurm script.

    The result is on standard output. Standard error lists each directive and field that is lost or changed, with the reason
    and the next step.

    headway convert job.pbs -o job.sbatch"""
    from headway.convert.conversion import convert_file

    data = _read(file)
    try:
        converted = convert_file(data, source=source, target=target, image=image)
    except InvalidSpec as error:
        raise InvalidSpec(error.faults, str(file)) from None
    if out is None:
        sys.stdout.write(converted.text)
        sys.stdout.flush()
    else:
        try:
            out.write_text(converted.text)
        except OSError as error:
            raise Refused(f"{out}: {error.strerror}", hint="name a file in a folder of yours") from None
    _print_losses(converted.losses, show_all=show_all)


def _read(file: Path) -> bytes:
    """Returns the first bytes of a file, at most one more than a job file may have."""
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotFound(f"{file}: {error.strerror}", hint="name a job file of this machine") from None


def _print_losses(losses: Sequence[Loss], *, show_all: bool) -> None:
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
