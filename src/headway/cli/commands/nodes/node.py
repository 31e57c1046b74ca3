"""node history|drain|return|reboot|test: one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterOption
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import Conflict

if TYPE_CHECKING:
    from headway.sdk.client import Client

app = typer.Typer(
    help="Drain, return, reboot or test a node; show its faults.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Node name.")]
LOOK_S = 1.0


@app.command("history")
def history(name: NodeName, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Show a node's faults, latest first, and its fault score.

    headway node history lab-1-2"""
    api = common.connect()
    found = api.nodes.history(common.choose_cluster(api, cluster), name)
    if output is Format.json:
        print_json(found)
        return
    words = f"score {found.score} of {found.limit} over {found.days} days"
    common.print_line(f"{found.node}: {words}" + (f"; {found.why_out}" if found.why_out else ""))
    if not found.incidents:
        common.print_line("no incident")
        return
    common.print_line()
    columns = [
        tables.Column("INCIDENT", right=True), tables.Column("STATE"), tables.Column("SCORE", right=True),
        tables.Column("SINCE", drop_order=1), tables.Column("OUT FOR", right=True, drop_order=2),
        tables.Column("WHAT", shrink=True, min_width=24),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            str(incident.number), (incident.state, formatting.incident_style(incident.state)), str(incident.score),
            formatting.local_time(incident.opened_at), formatting.seconds(incident.times.closed_s), incident.what,
        ]
        for incident in found.incidents
    ]  # fmt: skip
    tables.print_table(columns, rows)


@app.command("drain")
def drain(
    name: NodeName,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Reason, shown to all users.")],
    cluster: ClusterOption = None,
) -> None:
    """Drain a node: no new job starts on it, running jobs continue.

    headway node drain lab-1-2 --reason "disk swap\""""
    api = common.connect()
    common.print_line(f"{name}: {api.nodes.drain(common.choose_cluster(api, cluster), name, reason).done}")


@app.command("return")
def undrain(name: NodeName, cluster: ClusterOption = None) -> None:
    """Return a node to service; with an open incident it is tested first.

    headway node return lab-1-2"""
    api = common.connect()
    common.print_line(f"{name}: {api.nodes.return_to_service(common.choose_cluster(api, cluster), name).done}")


@app.command("reboot")
def reboot(
    name: NodeName,
    cluster: ClusterOption = None,
    even_if_busy: Annotated[bool, typer.Option("--even-if-busy", help="Reboot even if jobs run on the node.")] = False,
) -> None:
    """Reboot a node; if it was in service, it returns once its tests pass.

    headway node reboot lab-1-2"""
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    api.nodes.reboot(picked, name, busy=even_if_busy)
    _wait(api, picked, name)


@app.command("test")
def run_tests(
    name: NodeName,
    cluster: ClusterOption = None,
    hard: Annotated[
        bool, typer.Option("--hard", help="Also test memory, load and GPU copies; the node must be idle.")
    ] = False,
) -> None:
    """Run a node's tests; change nothing.

    headway node test lab-1-2"""
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    api.nodes.test(picked, name, hard=hard)
    _wait(api, picked, name)


def _wait(api: Client, cluster: str, name: str) -> None:
    """Waits until the reboot or test has ended. Raises Conflict when it failed."""
    import time

    while True:
        action = api.nodes.get(cluster, name).action
        if action is None:  # the server was restarted meanwhile
            raise Conflict(f"the server has no record of it any more: headway status {cluster}")
        if action.ended_at is not None:
            break
        time.sleep(LOOK_S)
    for test in action.tests:
        common.print_line(f"{test.name}: {'passed' if test.ok else test.text or 'failed'}")
    if action.fault:
        raise Conflict(f"{name}: {action.fault}", hint=f"headway node history {name}")
    common.print_line(f"{name}: {'it is running again' if action.kind == 'reboot' else 'all tests passed'}")
