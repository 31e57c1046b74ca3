"""mlflow: installs the MLflow server, and shows its state."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from headway.cli import common
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.terminal import without_control_characters
from headway.domain.dataset import format_bytes

app = typer.Typer(
    help="Install and inspect the MLflow server.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.command()
def install() -> None:
    """Install MLflow on this machine, the server's, in an environment of its own. The Headway server then starts it.

    headway mlflow install"""
    import asyncio

    from headway.mlflow_files import FOLDER
    from headway.paths import state_dir
    from headway.sdk.mlflow.installation import install_mlflow

    data = Path(os.environ.get("HEADWAY_DATA") or state_dir())

    def show(line: str) -> None:
        if line.startswith(("Downloading", "Installing", "ERROR")):
            common.print_note(without_control_characters(line[:200]))

    made = asyncio.run(install_mlflow(data / FOLDER, show))
    common.print_line(f"MLflow is {'installed' if made else 'installed already'} in {data / FOLDER / 'env'}")
    common.print_line("the Headway server starts it within seconds; see headway mlflow status")


@app.command()
def status(output: Output = Format.table) -> None:
    """Show whether the MLflow server runs, and how much of what jobs log waits for it. Exits with 1 if it does not run.

    headway mlflow status"""
    found = common.connect().server().mlflow
    if found is None:
        common.print_note("only admins see the MLflow server's state")
        raise typer.Exit(1)
    if output is Format.json:
        print_json(found)
    else:
        common.print_line(f"MLflow  {found.state}{': ' + found.error if found.error else ''}")
        for cluster, size in sorted(found.waiting_bytes.items()):
            common.print_line(f"{cluster}  {format_bytes(size)} of the jobs' journals wait")
    if found.state != "running":
        raise typer.Exit(1)


@app.command()
def ui(
    team: Annotated[str, typer.Argument(metavar="TEAM", help="Team whose runs to show.")],
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", metavar="CLUSTER", help="Cluster of the team.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on this computer (default: a free one).")
    ] = 0,
) -> None:
    """Open MLflow's pages in a browser, with the runs of one team. They are served on this computer until Ctrl-C.

    headway mlflow ui vision"""
    from headway.sdk.mlflow.page import MlflowPage

    api = common.connect()
    name = common.choose_cluster(api, cluster)
    page = MlflowPage(api, name, team, port)
    common.print_line(page.link)
    common.print_note("Ctrl-C ends it.")
    if sys.stdout.isatty():
        webbrowser.open(page.link)
    try:
        page.serve_forever()
    except KeyboardInterrupt:
        page.server_close()
