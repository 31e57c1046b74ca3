"""image: builds, lists, describes and removes the node images of local machines. Works on this machine, without the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headway.catalog.node_images import DEFAULT_IMAGE, IMAGES
from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.operation_progress import STEP_WIDTH
from headway.cli.output.output_formats import Format, Output, print_json
from headway.validation.syntax_rules import join_words

if TYPE_CHECKING:
    from headway.images.local_images import ImageInfo

T = TypeVar("T")

app = typer.Typer(
    help="Build, list, describe and remove node images.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help=f"{join_words(IMAGES)}.")]


@app.command()
def build(
    name: Name = DEFAULT_IMAGE,
    update: Annotated[
        bool, typer.Option("--update", help="Download all packages again, in the mirror's present versions.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Build a node image, unless an up-to-date one exists.

    With --update an image with newer packages becomes the current one: headway plan and headway roll then replace machines of
    the former image."""
    from headway.images import build as image_build
    from headway.images import local_images

    started = time.monotonic()

    async def report(step: str, text: str, *, level: str = "info", **_: object) -> None:
        mark = "" if level == "info" else f"{level}: "
        common.print_note(f"{time.monotonic() - started:7.1f}s  {step:<{STEP_WIDTH}}  {mark}{text}")

    built = _run(image_build.build_image(name, report, update=update))
    if output is Format.json:
        print_json(built)
        return
    common.print_line(f"{built.tag} is ready: Slurm {built.slurm_version}, {built.size_mib} MiB")
    if old := sum(i.unused for i in _run(local_images.list_images())):
        common.print_note(f"{formatting.plural(old, 'image')} outdated and unused; headway image rm --unused")


@app.command()
def ls(output: Output = Format.table) -> None:
    """List node images."""
    from headway.images import local_images

    images = _run(local_images.list_images())
    if output is Format.json:
        print_json(images)
        return
    if not images:
        common.print_line("no node image yet; headway image build")
        return
    columns = [
        tables.Column("NAME"), tables.Column("SLURM"), tables.Column("SIZE", right=True), tables.Column("BUILT", drop_order=2),
        tables.Column("MACHINES", right=True), tables.Column("STATE"), tables.Column("TAG", shrink=True, drop_order=1),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [i.name, i.slurm_version, f"{i.size_mib} MiB", i.built, str(i.machines), _state(i), i.tag]
        for i in images
    ]  # fmt: skip
    tables.print_table(columns, rows)


@app.command()
def sbom(name: Name = DEFAULT_IMAGE) -> None:
    """Print the bill of materials of the current node image, as JSON in CycloneDX 1.6.

    headway image sbom > node-image.cdx.json"""
    from headway.images.image_sbom import image_sbom

    common.print_line(_run(image_sbom(name)).rstrip("\n"))


@app.command()
def rm(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help=f"{', '.join(IMAGES)} or all.", show_default=False)
    ] = "",
    unused: Annotated[bool, typer.Option("--unused", help="Remove outdated images that no node uses.")] = False,
) -> None:
    """Remove node images by name, or all unused ones. Running machines keep theirs."""
    from headway.images import local_images

    if bool(name) == unused:
        raise typer.BadParameter("name an image, or give --unused")
    removed = _run(local_images.remove_unused_images() if unused else local_images.remove_images(name))
    for tag in removed:
        common.print_line(f"removed {tag}")
    if unused and not removed:
        common.print_line("no unused image")


def _state(info: ImageInfo) -> tables.Cell:
    if info.current:
        return "current", "good"
    return ("unused", "") if info.unused else ("outdated", "warn")


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
