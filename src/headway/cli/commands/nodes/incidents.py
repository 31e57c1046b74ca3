"""incidents, incident show|return: node faults and their steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName, ClusterOption
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.terminal import detect_terminal, paint, without_control_characters
from headway.errors import Refused

if TYPE_CHECKING:
    from headway.schemas.nodes.incidents import IncidentOut, IncidentStepOut
    from headway.sdk.client import Client

FOLLOW_S = 1.0  # seconds between two looks for new steps
LATEST = 50  # incidents among which new ones are looked for

app = typer.Typer(
    help="Show one fault's steps; return its node to service.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
Number = Annotated[int, typer.Argument(metavar="INCIDENT", help="Incident number.")]


def incidents(
    cluster: ClusterName = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print the steps of open and new incidents until ^C.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """List node faults, latest first; as JSON with all their steps."""
    if follow and output is Format.json:
        raise Refused("--follow prints text, not JSON", hint="use headway incidents -o json")
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    if follow:
        _follow(api, name)
        return
    found = api.incidents.list(name, steps=output is Format.json)
    if output is Format.json:
        print_json(found)
        return
    if not found:
        common.print_line(f"no incident on {name}")
        return
    columns = [
        tables.Column("INCIDENT", right=True), tables.Column("NODE"), tables.Column("STATE"),
        tables.Column("SINCE", drop_order=1), tables.Column("WHAT", shrink=True, min_width=24),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            str(incident.number),
            incident.node,
            (incident.state, formatting.incident_style(incident.state)),
            formatting.local_time(incident.opened_at),
            incident.what,
        ]
        for incident in found
    ]
    tables.print_table(columns, rows)


def _follow(api: Client, name: str) -> None:
    terminal = detect_terminal()
    for found, step in _new_steps(api, name):
        at = formatting.local_time(step.at).rpartition(" ")[2]
        state = paint(f"{step.state:<14}", formatting.incident_style(step.state), terminal)
        text = without_control_characters(f"{step.actor}: {step.text}")
        common.print_line(f"{at}  incident {found.number}  {found.node}  {state}  {text}")


def _new_steps(api: Client, name: str) -> Iterator[tuple[IncidentOut, IncidentStepOut]]:
    """Yields the steps of open incidents, then each new step of these and of new incidents, without end. Incidents that were
    closed at the first look are left out."""
    printed: dict[int, int] = {}  # incident: its printed steps
    was_open: set[int] = set()  # incidents that were open at the last look
    newest: int | None = None  # number of the newest incident at the last look
    while True:
        found = {one.number: one for one in api.incidents.list(name, steps=True, state="open")}
        latest = [one.number for one in api.incidents.list(name, latest=LATEST)]
        if newest is None and not found:
            common.print_note(f"no open incident on {name}; each new step is printed here, ^C ends")
        new = {number for number in latest if newest is not None and number > newest}
        closed = (was_open | new) - found.keys()  # closed since the last look, some of them also opened since
        was_open = {*found}
        found |= {number: api.incidents.get(name, number) for number in closed}
        for number, incident in sorted(found.items()):
            for step in incident.steps[printed.get(number, 0) :]:
                yield incident, step
            printed[number] = len(incident.steps)
        newest = max([newest or 0, *latest, *found])
        time.sleep(FOLLOW_S)


@app.command("show")
def show_one(number: Number, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Show all steps of one fault: when, who, why.

    headway incident show 3"""
    api = common.connect()
    _print(api.incidents.get(common.choose_cluster(api, cluster), number), output)


@app.command("return")
def bring_back(
    number: Number,
    cluster: ClusterOption = None,
    false_alarm: Annotated[bool, typer.Option("--false-alarm", help="Record that there was no fault.")] = False,
    output: Output = Format.table,
) -> None:
    """Test a repaired node and return it to service.

    headway incident return 3"""
    api = common.connect()
    _print(api.incidents.return_node(common.choose_cluster(api, cluster), number, false_alarm=false_alarm), output)


def _print(found: IncidentOut, output: Format) -> None:
    if output is Format.json:
        print_json(found)
        return
    facts: list[tuple[str, tables.Cell]] = [
        ("incident", f"{found.number} on {found.cluster}"),
        ("node", found.node),
        ("what", found.what),
        ("state", (found.state, formatting.incident_style(found.state))),
        ("since", formatting.local_time(found.opened_at)),
        ("after", _after(found)),
    ]
    tables.print_facts(facts)
    common.print_line()
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
        common.print_line()
        head = [
            tables.Column("JOB", right=True),
            *(tables.Column(w, right=True) for w in ("REQUEUED", "RUNNING", "FIRST STEP")),
        ]
        jobs: list[list[tables.Cell]] = [
            [
                str(job.job),
                *(formatting.seconds(at and at - start) for at in (job.requeued_at, job.running_at, job.step_at)),
            ]
            for job in found.jobs
        ]
        tables.print_table(head, jobs)


def _after(found: IncidentOut) -> str:
    """Returns the times in one line, in the order in which they should come."""
    times = found.times
    durations = (
        ("seen", times.detect_s), ("drained", times.drain_s), ("requeued", times.requeue_s),
        ("running again", times.running_s), ("first step", times.step_s), ("returned", times.closed_s),
    )  # fmt: skip
    return ", ".join(f"{word} {formatting.seconds(value)}" for word, value in durations if value is not None)


def _began(found: IncidentOut) -> float:
    """Returns when it happened; when it was seen, where that is not known."""
    return found.fault_at or found.opened_at
