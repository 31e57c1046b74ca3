"""Headway never lifts a drain set by a person, and returns an unreliable node only under its reservation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headway.cluster import readiness
from headway.domain.incident import IncidentState
from headway.domain.machines.machine import Machine
from headway.errors import Refused
from headway.health import manual_node_actions
from headway.store.store import Store
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.clusters.incident_cluster import LAB, NODE, Ward, symptom, ward
from tests.support.clusters.rollout_cluster import Fleet, fleet, go, store

__all__ = ["fleet", "store"]
BOB = "bob: disk swap"


def meanwhile(lab: Ward, what: Any) -> None:
    """Happens while the machine is started again."""
    start = lab.world.start

    async def started(machine: Machine) -> None:
        await start(machine)
        await what()

    lab.world.start = started  # type: ignore[method-assign, assignment]


async def drained_by_bob(lab: Ward) -> None:
    lab.world.state, lab.world.reason = "IDLE+DRAIN", BOB


@pytest.mark.parametrize("sound", [True, False])
async def test_drain_set_during_a_reboot_is_kept_with_its_reason(lab: Ward, sound: bool) -> None:
    lab.world.sound = sound
    meanwhile(lab, lambda: drained_by_bob(lab))
    fault = await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga")
    assert (lab.world.state, lab.world.reason) == ("IDLE+DRAIN", BOB)
    assert BOB in fault if sound else fault == "mounts: /scratch is gone"


async def test_node_returned_during_its_reboot_is_drained_if_tests_fail(lab: Ward) -> None:
    async def returned() -> None:
        lab.world.state, lab.world.reason = "IDLE", ""

    lab.world.sound = False
    meanwhile(lab, returned)
    await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga")
    assert lab.world.reason == "olga: reboot: mounts: /scratch is gone"


async def test_fault_during_a_manual_reboot_keeps_the_node_out(lab: Ward) -> None:
    async def falls_off() -> None:
        await lab.responder.handle_symptom(symptom(), [])

    meanwhile(lab, falls_off)
    fault = await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga")
    assert fault == "incident 1 is open: headway incident return 1 first"
    assert (lab.world.state, lab.world.reason) == ("IDLE+DRAIN", (await lab.newest()).reasons[0])
    assert await manual_node_actions.person_rebooting(lab.responder.context, NODE) == ""
    assert (await lab.settle()).state is IncidentState.OUT


def drains(fleet: Fleet, name: str) -> None:
    """Bob, while the node's machine is made anew."""

    note = fleet.note

    def at(line: str) -> None:
        note(line)
        if line == f"make {name} new":
            fleet.reasons[name] = BOB

    fleet.note = at  # type: ignore[method-assign]


@pytest.mark.parametrize("bad", [set(), {"new"}])
async def test_drain_set_while_a_machine_is_recreated_is_kept(fleet: Fleet, store: Store, bad: set[str]) -> None:
    drains(fleet, "lab-1-1")
    fleet.bad = bad
    if bad:
        with pytest.raises(Refused, match="lab-1-1: nvidia-smi lists 0 GPUs"):
            await go(fleet, store)
    else:
        assert await go(fleet, store)
        assert set(fleet.images().values()) == {"id-new"}
        assert any(BOB in line for line in fleet.order if line.startswith("say lab-1-1"))
    assert fleet.reasons == {"lab-1-1": BOB}


async def test_apply_returns_only_nodes_not_held_by_a_person_or_an_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = ("Not responding", BOB, "headway: incident 3: XID 79", "", "headway: no machine", "ResumeTimeout reached")
    lab = builders.cluster(6, 0)
    now = dict(zip(lab.slot_names, reasons, strict=True))
    back: list[str] = []

    async def remote(_: Any, argv: list[str], **__: Any) -> CommandResult:
        if "show" in argv:
            return CommandResult(
                tuple(argv),
                0,
                f"NodeName={argv[-1]} State=DOWN Reason={now[argv[-1]]} [root@2026-01-01T00:00:00]\n",
                "",
                0.0,
            )
        back.append(argv[2].partition("=")[2])
        return CommandResult(tuple(argv), 0, "", "", 0.0)

    async def states(*_: Any) -> dict[str, Any]:  # before anybody had said anything
        return {name: builders.node(name, "DOWN", reason="Not responding") for name in lab.slot_names}

    monkeypatch.setattr(readiness, "read_node_states", states)
    context: Any = SimpleNamespace(connections=SimpleNamespace(remote=remote))
    found = await readiness.return_nodes(lab, context, builders.machine("lab-head"), frozenset(lab.slot_names))
    assert found == tuple(back)
    assert {now[name] for name in found} == set(reasons) - {BOB, "headway: incident 3: XID 79"}


@pytest.fixture
async def flaky_lab(tmp_path: Any) -> AsyncIterator[Ward]:
    async with ward(tmp_path, replace(LAB, health=builders.health(reserve_flaky_nodes=True))) as made:
        yield made


async def test_failing_reservation_update_does_not_block_a_repaired_node(flaky_lab: Ward) -> None:
    """Slurm refuses to delete one that a job names."""
    refused = 0

    def reservation(words: list[str]) -> tuple[int, str]:
        nonlocal refused
        if words[1] == "--oneliner":
            return 0, "ReservationName=headway_flaky Nodes=lab-1-3\n"
        refused += 1
        return 1, ""

    flaky_lab.world._reservation = reservation  # type: ignore[assignment, method-assign]
    await flaky_lab.responder.handle_symptom(symptom(46), [])
    assert (await flaky_lab.settle()).steps[-1].text == "tests passed; back in service"
    assert (refused, flaky_lab.world.state) == (1, "IDLE")


async def test_flaky_node_returns_only_once_its_reservation_is_set(tmp_path: Any) -> None:
    async with ward(tmp_path, replace(LAB, health=builders.health(flaky_score=1, reserve_flaky_nodes=True))) as lab:
        real = lab.world._reservation
        lab.world._reservation = lambda words: real(words) if "--oneliner" in words else (1, "")  # type: ignore[method-assign]
        await lab.responder.handle_symptom(symptom(46), [])
        assert (await lab.settle()).state is IncidentState.TESTING
        assert (lab.world.state, lab.world.flaky_nodes) == ("IDLE+DRAIN", "")
        lab.world._reservation = real  # type: ignore[method-assign]
        assert "for jobs in reservation headway_flaky only" in (await lab.settle()).steps[-1].text
        assert (lab.world.state, lab.world.flaky_nodes) == ("IDLE", NODE)
