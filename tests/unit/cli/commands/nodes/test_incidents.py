"""incidents and incident show|return send the right requests and print the answers."""

from __future__ import annotations

import json

import pytest

from headway.cli.commands.nodes import incidents
from headway.schemas.nodes.incidents import IncidentOut, IncidentStepOut
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


class _Looks:
    """Answers each look with the next list of incidents; the look after the last is interrupted, as by ^C."""

    def __init__(self, *answers: list[IncidentOut]) -> None:
        self._answers = iter(answers)

    def __call__(self, *_: object, **__: object) -> list[IncidentOut]:
        found = next(self._answers, None)
        if found is None:
            raise KeyboardInterrupt
        return found


def test_followed_incidents_print_each_step_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "FOLLOW_S", 0.0)
    old, now, later = incident(1, "returned"), incident(2, "draining"), incident(2, "jobs moved")
    later.steps.append(IncidentStepOut(at=1003.0, state="jobs moved", actor="headway", text="requeued: 7\x1b[2J"))
    cli.api.on("clusters.only_name", "lab").on("incidents.list", _Looks([now, old], [later, old], [later, old]))
    done = cli("incidents", "-f")
    assert done.code == 130
    lines = done.out.splitlines()
    assert [line.split()[1:5] for line in lines] == [
        ["incident", "2", "lab-1-2", "seen"],
        ["incident", "2", "lab-1-2", "draining"],
        ["incident", "2", "lab-1-2", "jobs"],
    ]
    assert lines[2].endswith("headway: requeued: 7?[2J")


def test_followed_incidents_say_that_none_is_open(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "FOLLOW_S", 0.0)
    cli.api.on("incidents.list", _Looks([incident(1, "returned")], [incident(1, "returned")]))
    done = cli("incidents", "lab", "-f")
    assert done.out == ""
    assert done.err.splitlines()[0] == "no open incident on lab; each new step is printed here, ^C ends"


def test_followed_incidents_are_not_printed_as_json(cli: Cli) -> None:
    done = cli("incidents", "lab", "-f", "-o", "json")
    assert done.code == 1
    assert "headway incidents -o json" in done.err


def test_incident_return_returns_the_node(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("incidents.return_node", incident(state="false alarm"))
    assert "false alarm" in cli("incident", "return", "3", "--false-alarm").out
    assert cli.api.named("incidents.return_node") == [(("lab", 3), {"false_alarm": True})]
