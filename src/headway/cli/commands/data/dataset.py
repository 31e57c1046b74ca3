"""dataset add|ls|verify|rm: versions of read-only data."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterOption
from headway.cli.output import formatting, tables
from headway.cli.output.operation_progress import follow_operation
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.dataset import format_bytes
from headway.errors import NotFound, Refused

if TYPE_CHECKING:
    from headway.schemas.operations import OperationOut
    from headway.schemas.storage.datasets import DatasetOut
    from headway.sdk.client import Client

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Manage versioned datasets, read-only on every machine.",
)
Which = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="Dataset (default version: the latest).")]


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Dataset name: lower-case letters, digits, - and _.")],
    source: Annotated[
        str, typer.Option("--from", metavar="SOURCE", help="Folder on the server's machine, or s3://BUCKET/PREFIX.")
    ],
    endpoint_url: Annotated[
        str, typer.Option("--endpoint-url", metavar="URL", help="URL of an S3 service other than Amazon's.")
    ] = "",
    cluster: ClusterOption = None,
    output: Output = Format.table,
) -> None:
    """Create a version from a folder's current content, mounted read-only at /datasets/NAME/VERSION on every machine.

    Files that several versions share are stored once. An interrupted upload resumes where it stopped.

    A bucket is read with this machine's AWS credentials (environment, AWS_PROFILE).

    headway dataset add tiny --from ./data/tiny"""
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    begun = _begin(api, picked, name, source, endpoint_url)
    final = follow_operation(api, begun, quiet=output is Format.json)
    if output is Format.json:
        print_json(final)
        return
    for place in final.kept:
        common.print_line(place)


def _begin(api: Client, cluster: str, name: str, source: str, endpoint_url: str) -> OperationOut:
    if source.startswith("s3://"):
        from headway.sdk.aws_credentials import s3_access

        return api.datasets.add(cluster, name, source, s3=s3_access(endpoint_url))
    if endpoint_url:
        raise Refused(
            "--endpoint-url needs an s3:// source", hint=f"headway dataset add {name} --from s3://BUCKET/PREFIX"
        )
    return api.datasets.add(cluster, name, os.path.normpath(Path.cwd() / common.expand_home(source)))


@app.command("ls")
def list_all(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="List only this dataset.")] = "",
    cluster: ClusterOption = None,
    output: Output = Format.table,
) -> None:
    """List versions: size, number of jobs that used it, state.

    headway dataset ls tiny"""
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    found = [dataset for dataset in api.datasets.list(picked) if name in ("", dataset.name)]
    if output is Format.json:
        print_json(found)
        return
    if not found:
        common.print_line(f"no dataset {name} on {picked}" if name else f"no dataset on {picked}")
        return
    columns = [
        tables.Column("DATASET"), tables.Column("FILES", right=True), tables.Column("SIZE", right=True),
        tables.Column("ADDED"), tables.Column("BY", drop_order=3), tables.Column("JOBS", right=True),
        tables.Column("STATE"), tables.Column("READ AGAIN", drop_order=1),
        tables.Column("PATH", shrink=True, min_width=18, drop_order=2),
    ]  # fmt: skip
    tables.print_table(columns, [_row(dataset_out) for dataset_out in found])


@app.command("verify")
def verify(which: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Read every file again and report damaged ones.

    headway dataset verify tiny@1"""
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    name, number = _version(api, picked, which)
    final = follow_operation(api, api.datasets.verify(picked, name, number), quiet=output is Format.json)
    if output is Format.json:
        print_json(final)
        return
    common.print_line(f"{name}@{number} is complete")


@app.command("rm")
def remove(
    which: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="Dataset version.")],
    cluster: ClusterOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if jobs used it; their lineage then records the removal.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = Format.table,
) -> None:
    """Remove a version. Refused while a job's lineage names it. Its number is not reused.

    headway dataset rm tiny@1"""
    if "@" not in which:
        raise Refused(f"give a version of {which}", hint=f"headway dataset rm {which}@1")
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    name, number = _version(api, picked, which)
    common.confirm(
        f"Remove {name}@{number} from {picked}?", yes=yes, refusal=f"{name}@{number} would be deleted permanently"
    )
    final = follow_operation(api, api.datasets.remove(picked, name, number, force=force), quiet=output is Format.json)
    if output is Format.json:
        print_json(final)
        return
    common.print_line(f"{name}@{number} is removed")


def _version(api: Client, cluster: str, which: str) -> tuple[str, int]:
    """tiny@2, or tiny for its latest."""
    match = re.fullmatch(r"([a-z][a-z0-9_-]*)(?:@([0-9]{1,9}))?", which)
    if match is None:
        raise Refused(f"{which} is not a dataset", hint="give NAME@VERSION, as headway dataset ls prints it")
    if match[2]:
        return match[1], int(match[2])
    numbers = [dataset.version for dataset in api.datasets.list(cluster) if dataset.name == match[1]]
    if not numbers:
        raise NotFound(f"{cluster} has no dataset {match[1]}", hint="headway dataset ls")
    return match[1], max(numbers)


def _row(dataset_out: DatasetOut) -> list[tables.Cell]:
    return [
        f"{dataset_out.name}@{dataset_out.version}",
        str(dataset_out.files),
        format_bytes(dataset_out.bytes),
        formatting.local_time(dataset_out.at),
        dataset_out.person,
        str(dataset_out.jobs),
        (dataset_out.state, "bad" if dataset_out.state == "damaged" else "good"),
        formatting.local_time(dataset_out.checked_at) if dataset_out.checked_at else "-",
        dataset_out.path,
    ]
