"""incidents and incident show|return send the right requests and print the answers."""

from __future__ import annotations

import json

from tests.support.cli_fakes import Cli, cli, incident

__all__ = ["cli"]  # a fixture


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
