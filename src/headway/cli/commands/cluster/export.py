"""export slurm|kubernetes: plain Slurm files of a cluster; a job or a service as objects of Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli import common
from headway.cli.commands.cluster.export_kubernetes import kubernetes
from headway.cli.common import ClusterName
from headway.cli.output.formatting import plural
from headway.cli.output.output_formats import Format, Output, print_json

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Write plain Slurm files of a cluster, or objects of Kubernetes for a job or service.",
)
app.command("kubernetes")(kubernetes)


@app.callback()
def _group() -> None: ...


@app.command("slurm")
def slurm(
    cluster: ClusterName = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Folder to write to (default: CLUSTER-slurm).")
    ] = None,
    output: Output = Format.table,
) -> None:
    """Write slurm.conf and all else that plain Slurm needs to run this cluster without Headway.

    Write gres.conf, cgroup.conf, topology.conf, slurmdbd.conf, scripts that add users, accounts and limits, README.md with
    the steps to start from these files, and report.md with what plain Slurm does not have. Never overwrite a file. No key
    and no password is written.

    headway export slurm lab --to lab-slurm"""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    found = api.clusters.slurm_export(name)
    folder = common.expand_home(str(to)) if to else Path(f"{name}-slurm")
    written = common.write_new_files(folder, found.files)
    if output is Format.json:
        print_json({**found.model_dump(exclude={"files"}), "files": [str(file) for file in written]})
        return
    common.print_line(f"wrote {plural(len(written), 'file')} to {folder}: {', '.join(file.name for file in written)}")
    common.print_line(f"  {found.kept:,} keys are kept, {found.changed:,} changed, {found.left_out:,} left out")
    common.print_line(
        f"  {plural(len(found.lost), 'feature')} of {name} are not in plain Slurm: {folder / 'report.md'}"
    )
    common.print_line(f"  next: {folder / 'README.md'}")
