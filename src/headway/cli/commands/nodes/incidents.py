"""incidents, incident show|return, node history|drain|return|reboot|test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import formatting, session, tables
from headway.cli.session import ClusterName, ClusterOption, Format, Output
from headway.errors import Conflict

if TYPE_CHECKING:
    from headway.schemas.incidents import IncidentOut
    from headway.sdk.client import Client

app = typer.Typer(
    help="Show one fault's steps; return its node to service.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
Number = Annotated[int, typer.Argument(metavar="INCIDENT", help="Incident number.")]
_STYLE = {"returned": "good", "false alarm": "dim", "out of service": "bad"}


node = typer.Typer(
    help="Drain, return, reboot or test a node; show its faults.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Node name.")]
LOOK_S = 1.0


def incidents(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """List node faults, latest first; as JSON with all their steps."""
    api = session.connect()
    name = session.choose_cluster(api, cluster)
    found = api.incidents.list(name, steps=output is Format.json)
    if output is Format.json:
        session.print_json(found)
        return
    if not found:
        session.print_line(f"no incident on {name}")
        return
    columns = [
        tables.Column("INCIDENT", right=True), tables.Column("NODE"), tables.Column("STATE"),
        tables.Column("SINCE", drop_order=1), tables.Column("WHAT", shrink=True, min_width=24),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [str(one.number), one.node, (one.state, _style(one)), formatting.local_time(one.opened_at), one.what]
        for one in found
    ]
    tables.print_table(columns, rows)


@app.command("show")
def show_one(number: Number, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Show all steps of one fault: when, who, why.

    headway incident show 3"""
    api = session.connect()
    _print(api.incidents.get(session.choose_cluster(api, cluster), number), output)


@app.command("return")
def bring_back(
    number: Number,
    cluster: ClusterOption = None,
    false_alarm: Annotated[bool, typer.Option("--false-alarm", help="Record that there was no fault.")] = False,
    output: Output = Format.table,
) -> None:
    """Test a repaired node and return it to service.

    headway incident return 3"""
    api = session.connect()
    _print(api.incidents.return_node(session.choose_cluster(api, cluster), number, false_alarm=false_alarm), output)


@node.command("history")
def history(name: NodeName, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Show a node's faults, latest first, and its fault score.

    headway node history lab-1-2"""
    api = session.connect()
    found = api.nodes.history(session.choose_cluster(api, cluster), name)
    if output is Format.json:
        session.print_json(found)
        return
    words = f"score {found.score} of {found.limit} over {found.days} days"
    session.print_line(f"{found.node}: {words}" + (f"; {found.why_out}" if found.why_out else ""))
    if not found.incidents:
        session.print_line("no incident")
        return
    session.print_line()
    columns = [
        tables.Column("INCIDENT", right=True), tables.Column("STATE"), tables.Column("SCORE", right=True),
        tables.Column("SINCE", drop_order=1), tables.Column("OUT FOR", right=True, drop_order=2),
        tables.Column("WHAT", shrink=True, min_width=24),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            str(one.number), (one.state, _style(one)), str(one.score), formatting.local_time(one.opened_at),
            _seconds(one.times.closed_s), one.what,
        ]
        for one in found.incidents
    ]  # fmt: skip
    tables.print_table(columns, rows)


@node.command("drain")
def drain(
    name: NodeName,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Reason, shown to all users.")],
    cluster: ClusterOption = None,
) -> None:
    """Drain a node: no new job starts on it, running jobs continue.

    headway node drain lab-1-2 --reason "disk swap\""""
    api = session.connect()
    session.print_line(f"{name}: {api.nodes.drain(session.choose_cluster(api, cluster), name, reason).done}")


@node.command("return")
def undrain(name: NodeName, cluster: ClusterOption = None) -> None:
    """Return a node to service; with an open incident it is tested first.

    headway node return lab-1-2"""
    api = session.connect()
    session.print_line(f"{name}: {api.nodes.return_to_service(session.choose_cluster(api, cluster), name).done}")


@node.command("reboot")
def reboot(
    name: NodeName,
    cluster: ClusterOption = None,
    even_if_busy: Annotated[bool, typer.Option("--even-if-busy", help="Reboot even if jobs run on the node.")] = False,
) -> None:
    """Reboot a node; if it was in service, it returns once its tests pass.

    headway node reboot lab-1-2"""
    api = session.connect()
    picked = session.choose_cluster(api, cluster)
    api.nodes.reboot(picked, name, busy=even_if_busy)
    _wait(api, picked, name)


@node.command("test")
def run_tests(
    name: NodeName,
    cluster: ClusterOption = None,
    hard: Annotated[
        bool, typer.Option("--hard", help="Also test memory, load and GPU copies; the node must be idle.")
    ] = False,
) -> None:
    """Run a node's tests; change nothing.

    headway node test lab-1-2"""
    api = session.connect()
    picked = session.choose_cluster(api, cluster)
    api.nodes.test(picked, name, hard=hard)
    _wait(api, picked, name)


def _wait(api: Client, cluster: str, name: str) -> None:
    """Until what was begun has ended. Conflict when it did not go well."""
    import time

    while True:
        deed = api.nodes.get(cluster, name).deed
        if deed is None:  # the server was restarted meanwhile
            raise Conflict(f"the server has no record of it any more: headway status {cluster}")
        if deed.ended_at is not None:
            break
        time.sleep(LOOK_S)
    for one in deed.tests:
        session.print_line(f"{one.name}: {'passed' if one.ok else one.text or 'failed'}")
    if deed.fault:
        raise Conflict(f"{name}: {deed.fault}", hint=f"headway node history {name}")
    session.print_line(f"{name}: {'it is running again' if deed.kind == 'reboot' else 'all tests passed'}")


def _print(found: IncidentOut, output: Format) -> None:
    if output is Format.json:
        session.print_json(found)
        return
    facts: list[tuple[str, tables.Cell]] = [
        ("incident", f"{found.number} on {found.cluster}"),
        ("node", found.node),
        ("what", found.what),
        ("state", (found.state, _style(found))),
        ("since", formatting.local_time(found.opened_at)),
        ("after", _after(found)),
    ]
    tables.print_facts(facts)
    session.print_line()
    columns = [
        tables.Column("AFTER", right=True),
        tables.Column("STATE"),
        tables.Column("BY"),
        tables.Column("WHAT", shrink=True, min_width=24),
    ]
    start = _began(found)
    rows: list[list[tables.Cell]] = [
        [f"{max(0.0, step.at - start):.1f} s", step.state, step.actor, step.text] for step in found.steps
    ]
    tables.print_table(columns, rows)
    if found.jobs:
        session.print_line()
        head = [
            tables.Column("JOB", right=True),
            *(tables.Column(w, right=True) for w in ("REQUEUED", "RUNNING", "FIRST STEP")),
        ]
        jobs: list[list[tables.Cell]] = [
            [str(one.job), *(_seconds(at and at - start) for at in (one.requeued_at, one.running_at, one.step_at))]
            for one in found.jobs
        ]
        tables.print_table(head, jobs)


def _after(found: IncidentOut) -> str:
    """The times in one line, in the order in which they should come."""
    times = found.times
    told = (
        ("seen", times.detect_s), ("drained", times.drain_s), ("requeued", times.requeue_s),
        ("running again", times.running_s), ("first step", times.step_s), ("returned", times.closed_s),
    )  # fmt: skip
    return ", ".join(f"{word} {_seconds(value)}" for word, value in told if value is not None)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{max(0.0, value):.1f} s"


def _began(found: IncidentOut) -> float:
    """When it happened; when it was seen, where that is not known."""
    return found.fault_at or found.opened_at


def _style(found: IncidentOut) -> str:
    return _STYLE.get(found.state, "warn")
