"""incidents and incident show|return send the right requests and print the answers."""

from __future__ import annotations

import json

import pytest

from headway.cli.commands.nodes import incidents
from headway.domain.incident import IncidentState
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
    """Answers each look with the next incidents; the look after the last is interrupted, as by ^C. Only open incidents have
    their steps in a list."""

    def __init__(self, cli: Cli, *looks: list[IncidentOut]) -> None:
        self._looks, self._now = iter(looks), list[IncidentOut]()
        cli.api.on("incidents.list", self.list).on("incidents.get", self.get)

    def list(self, _: str, *, steps: bool = False, state: str = "", latest: int = 0) -> list[IncidentOut]:
        if state == "open":
            assert steps
            found = next(self._looks, None)
            if found is None:
                raise KeyboardInterrupt
            self._now = found
            return [one for one in found if not IncidentState(one.state).closed]
        assert latest, "all incidents are not asked for"
        return [one.model_copy(update={"steps": []}) for one in self._now]

    def get(self, _: str, number: int) -> IncidentOut:
        (found,) = (one for one in self._now if one.number == number)
        return found


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "FOLLOW_S", 0.0)


@pytest.mark.usefixtures("no_pause")
def test_followed_incidents_print_each_step_once(cli: Cli) -> None:
    old, now, later = incident(1, "returned"), incident(2, "draining"), incident(2, "jobs moved")
    later.steps.append(IncidentStepOut(at=1003.0, state="jobs moved", actor="headway", text="requeued: 7\x1b[2J"))
    cli.api.on("clusters.only_name", "lab")
    _Looks(cli, [now, old], [later, old], [later, old])
    done = cli("incidents", "-f")
    assert done.code == 130
    lines = done.out.splitlines()
    assert [line.split()[1:5] for line in lines] == [
        ["incident", "2", "lab-1-2", "seen"],
        ["incident", "2", "lab-1-2", "draining"],
        ["incident", "2", "lab-1-2", "jobs"],
    ]
    assert lines[2].endswith("headway: requeued: 7?[2J")


@pytest.mark.usefixtures("no_pause")
def test_incidents_that_close_between_two_looks_are_followed_to_their_end(cli: Cli) -> None:
    """Incident 2 was open at the look before, 3 is opened and closed since."""
    done = incident(2, "returned")
    done.steps.append(IncidentStepOut(at=1003.0, state="returned", actor="headway", text="back"))
    _Looks(cli, [incident(2)], [incident(3, "returned"), done], [incident(3, "returned"), done])
    lines = cli("incidents", "lab", "-f").out.splitlines()
    assert [line.split()[2] + line.split()[4] for line in lines] == [
        "2seen", "2draining", "2returned", "3seen", "3draining"
    ]  # fmt: skip


@pytest.mark.usefixtures("no_pause")
def test_followed_incidents_say_that_none_is_open(cli: Cli) -> None:
    _Looks(cli, [incident(1, "returned")], [incident(1, "returned")])
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
