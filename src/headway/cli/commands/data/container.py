"""container: images that an administrator imports for all users. Users' own images need no command: jobs import them."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated, Any

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import Refused

RUNTIME = ("python3", "-IS", "/usr/lib/headway/container")

app = typer.Typer(
    help="Manage container images shared by all users of a cluster.", no_args_is_help=True, rich_markup_mode=None,
    add_completion=False,
)  # fmt: skip
Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="Cluster name.")]


@app.command("import")
def import_(
    cluster: Cluster,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Image, as for --container-image.")],
    output: Output = Format.table,
) -> None:
    """Import an image once for all users; jobs that use the same digest then start without a download.

    headway container import lab nvcr.io#nvidia/pytorch:25.05-py3"""
    _check(image)
    common.print_note(f"fetching {image} on {cluster}'s head")
    made = json.loads(_run_on_head(cluster, "import", image))
    if output is Format.json:
        print_json(made)
        return
    common.print_line(f"{made['image']} is available to all users: {made['path']}, {made['bytes'] >> 20} MiB")


def _check(image: str) -> None:
    """Raises Refused for a file, which is no image to import, and for a path that means nothing on the head."""
    if image.endswith((".sqsh", ".squashfs")):
        raise Refused(
            f"{image} needs no import: Slurm uses the file directly",
            hint="put it on a volume of all nodes, for example /scratch, and use --container-image=/scratch/image.sqsh",
        )
    path = image.removeprefix("oci:").removeprefix("//")
    if not path.startswith("/") and (path != image or image.startswith((".", "~"))):
        raise Refused(
            f"{image} is not an absolute path",
            hint="give the absolute path of an OCI layout on the head, or an image name",
        )


@app.command()
def ls(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """List the shared images."""
    rows: list[dict[str, Any]] = json.loads(_run_on_head(cluster, "list"))
    if output is Format.json:
        print_json(rows)
        return
    if not rows:
        common.print_line("no shared container image; headway container import CLUSTER IMAGE")
        return
    columns = [tables.Column("DIGEST"), tables.Column("SIZE", right=True), tables.Column("IMPORTED")]
    cells: list[list[tables.Cell]] = [
        [row["digest"], f"{row['bytes'] >> 20} MiB", formatting.local_time(row["imported"])] for row in rows
    ]
    tables.print_table(columns, cells)


@app.command()
def rm(
    cluster: Cluster, digest: Annotated[str, typer.Argument(metavar="DIGEST", help="Image digest: sha256:...")]
) -> None:
    """Remove a shared image. Running steps keep it until they end."""
    _run_on_head(cluster, "remove", digest)
    common.print_line(f"removed {digest}")


def _run_on_head(cluster: str | None, *words: str) -> str:
    """The runtime's answer on the head, as root: the server lets administrators alone. Raises Refused with its words."""
    api = common.connect()
    output = {"out": b"", "err": b"", "code": b"1"}
    with closing(api.commands.stream(common.choose_cluster(api, cluster), [*RUNTIME, *words])) as pieces:
        for kind, data in pieces:
            output[kind] = data if kind == "code" else output[kind] + data
    words_said = output["err"].decode(errors="replace").strip()
    if code := int(output["code"]):
        message, _, hint = words_said.rpartition("headway: ")[2].partition("\n")
        raise Refused(message or f"the head answered with {code}", hint=hint.strip())
    for line in words_said.splitlines():
        common.print_note(line.removeprefix("headway: "))
    return output["out"].decode()
