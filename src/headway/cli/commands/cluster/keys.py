"""keys: rotates a cluster's keys while jobs run."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output.operation_progress import follow_operation
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.access.cluster_key import ClusterKey

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Rotate a cluster's keys while jobs run."
)


@app.callback()
def _group() -> None: ...


@app.command("rotate")
def rotate(
    what: Annotated[ClusterKey, typer.Argument(metavar="|".join(ClusterKey), help="Key to replace.")],
    cluster: ClusterName = None,
    output: Output = Format.table,
) -> None:
    """Replace one of a cluster's keys. Jobs continue.

    headway keys rotate munge lab"""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    final = follow_operation(api, api.clusters.rotate_key(name, what), quiet=output is Format.json)
    if output is Format.json:
        print_json(final)
        return
    common.print_line(f"{name} has a new {what} key")
