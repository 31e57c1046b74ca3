"""incidents and incident show|return send the right requests and print the answers."""

from __future__ import annotations

import json

from headway.schemas.incidents import IncidentOut, IncidentStepOut, MovedJobOut, NodeHistoryOut, TimesOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def incident(number: int = 3, state: str = "out of service") -> IncidentOut:
    steps = [
        IncidentStepOut(at=1001.5, state="seen", actor="headway", text="XID 79: fell off", evidence={"at": 1000.0}),
        IncidentStepOut(at=1002.0, state="draining", actor="headway", text="drained: incident 3"),
    ]
    return IncidentOut(
        number=number, cluster="lab", node="lab-1-2", what="XID 79: fell off", action="rma", state=state,
        opened_at=1001.5, fault_at=1000.0, score=3, steps=steps,
        times=TimesOut(detect_s=1.5, drain_s=2.0, requeue_s=2.5),
        jobs=[MovedJobOut(job=7, requeued_at=1002.5, running_at=1009.0)],
    )  # fmt: skip


def test_incidents_are_listed_and_show_prints_the_steps_of_one(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("incidents.list", [incident()]).on("incidents.get", incident())
    lines = cli("incidents").out.splitlines()
    assert lines[1].split()[:2] == ["3", "lab-1-2"]
    assert json.loads(cli("incidents", "-o", "json").out)[0]["number"] == 3
    shown = cli("incident", "show", "3").out
    assert "1.5 s  seen" in shown
    assert "2.0 s  draining" in shown
    assert "seen 1.5 s, drained 2.0 s, requeued 2.5 s\n" in shown
    assert shown.splitlines()[-1].split() == ["7", "2.5", "s", "9.0", "s"]
    cli.api.on("incidents.list", [])
    assert cli("incidents", "lab").out == "no incident on lab\n"


def test_incident_return_returns_the_node(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("incidents.return_node", incident(state="false alarm"))
    assert "false alarm" in cli("incident", "return", "3", "--false-alarm").out
    assert cli.api.named("incidents.return_node") == [(("lab", 3), {"false_alarm": True})]


def test_node_history_prints_score_and_incidents(cli: Cli) -> None:
    found = NodeHistoryOut(
        node="lab-1-2", score=9, limit=8, days=14, why_out="fails too often", incidents=[incident(), incident(2)]
    )
    cli.api.on("clusters.only_name", "lab").on("nodes.history", found)
    lines = cli("node", "history", "lab-1-2").out.splitlines()
    assert lines[0] == "lab-1-2: score 9 of 8 over 14 days; fails too often"
    assert [line.split()[0] for line in lines[3:]] == ["3", "2"]
    assert json.loads(cli("node", "history", "lab-1-2", "-o", "json").out)["score"] == 9
