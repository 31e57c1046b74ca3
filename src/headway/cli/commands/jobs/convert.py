"""convert: converts a job file of another scheduler. No server is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.output.losses import print_losses
from headway.convert.formats import MAX_BYTES, Source, Target
from headway.errors import InvalidSpec, NotFound, Refused


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
    print_losses(converted.losses, show_all=show_all)


def _read(file: Path) -> bytes:
    """Returns the first bytes of a file, at most one more than a job file may have."""
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotFound(f"{file}: {error.strerror}", hint="name a job file of this machine") from None
