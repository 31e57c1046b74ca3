"""Repairs of owned machines let the machine restart itself and allow for the time that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.domain.incident import IncidentState
from headway.domain.machines.machine import Machine
from headway.health import manual_node_actions
from headway.health.detection.agent_events import Heartbeats
from headway.transport.connect import SudoRefused
from headway.transport.process import CommandResult
from tests.support.clusters.incident_cluster import NODE, Ward, World, symptom


def own(lab: Ward) -> World:
    """The node is a machine of one's own: its provider neither switches it off nor knows since when it runs."""
    world = lab.world
    assert world.machine is not None
    world.traits, world.machine = SSH, replace(world.machine, started_at=0.0)
    return world


async def test_owned_machine_is_tested_after_its_reboot_completes(lab: Ward) -> None:
    world = own(lab)
    await lab.responder.handle_symptom(symptom(79), [])
    began = lab.clock.now
    found = await lab.settle()
    assert found.state is IncidentState.RETURNED
    assert world.order == ["drain", "reboot", "resume"], "once, though it answers for a minute more"
    assert lab.clock.now >= began + 600, "its memory is tested for minutes"


async def test_reboot_requested_by_another_server_is_not_repeated(lab: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    world = own(lab)
    real, asked = world.remote, asyncio.Event()

    async def lost(at: Machine, argv: Sequence[str], **how: Any) -> CommandResult:
        ran = await real(at, argv, **how)
        if list(argv) == ["systemctl", "reboot"]:
            asked.set()
            await asyncio.Event().wait()
        return ran

    monkeypatch.setattr(world, "remote", lost)
    await lab.responder.handle_symptom(symptom(79), [])
    while not asked.is_set():
        await lab.responder.resume_open()
        await lab.responder.sleep(1)
    await lab.another_server()
    monkeypatch.setattr(world, "remote", real)
    lab.clock.now = world.goes_at + 1
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert world.order.count("reboot") == 1


async def test_owned_machine_that_never_restarts_stays_out(lab: Ward) -> None:
    own(lab).restarts_s = float("inf")
    await lab.responder.handle_symptom(symptom(79), [])
    found = await lab.settle()
    assert found.state is IncidentState.OUT
    assert f"reboot did not help: {NODE} does not answer, for 30 minutes" in [step.text for step in found.steps]


def wrong_password() -> tuple[int, str]:
    raise SudoRefused("the sudo password is wrong")


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        (lambda: (1, "Operation inhibited by backup"), f"{NODE} does not restart: Operation inhibited by backup"),
        (wrong_password, "the sudo password is wrong"),
    ],
)
async def test_permanent_reboot_failure_is_not_retried(
    lab: Ward, fails: Callable[[], tuple[int, str]], why: str
) -> None:
    world, began = own(lab), lab.clock.now
    world.reboot_fails = fails
    await lab.responder.handle_symptom(symptom(79), [])
    found = await lab.settle()
    assert (found.state, world.order.count("reboot")) == (IncidentState.OUT, 1)
    assert f"reboot did not help: {why}" in [step.text for step in found.steps]
    assert lab.clock.now < began + 600


@pytest.mark.parametrize("up_after_s", [40.0, 1200.0])
async def test_silent_owned_machine_is_awaited_and_never_rebooted(lab: Ward, up_after_s: float) -> None:
    """It may be starting at that moment: who tells it to restart as soon as it answers makes it worse."""
    world = own(lab)
    world.up_at = lab.clock.now + up_after_s
    world.jobs, world.ages[NODE] = {7: "RUNNING"}, 40.0
    await lab.responder.handle_heartbeats(Heartbeats(4, {NODE: 30.0}), lab.clock.now)
    found = await lab.settle()
    assert (found.state, world.jobs[7]) == (IncidentState.RETURNED, "PENDING")
    assert "reboot" not in world.order
    assert lab.clock.now >= world.up_at


async def test_owned_machine_that_already_restarted_is_tested_at_once(lab: Ward) -> None:
    world = own(lab)
    world.ages[NODE], world.started = 40.0, lab.clock.now - 20
    await lab.responder.handle_heartbeats(Heartbeats(4, {NODE: 30.0}), lab.clock.now)
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert "reboot" not in world.order


async def test_manual_reboot_waits_for_the_machine_and_fails_when_unreachable(lab: Ward) -> None:
    world, began = own(lab), lab.clock.now
    world.state, world.answers = "IDLE", True
    assert await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga") == ""
    assert [word for word in world.order if word != "ask"] == ["drain", "reboot", "resume"]
    assert lab.clock.now >= began + 600
    world.answers, began = False, lab.clock.now
    assert await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga") == "no answer"
    assert lab.clock.now == began


async def test_reboot_of_a_machine_in_a_container_restarts_its_host(lab: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    world = own(lab)
    assert world.machine is not None
    host = world.machine
    world.machine = replace(host, port=2222, host=host)
    real, asked = world.remote, []

    async def noting(at: Machine, argv: Sequence[str], **how: Any) -> CommandResult:
        if list(argv) == ["systemctl", "reboot"]:
            asked.append(at)
        return await real(at, argv, **how)

    monkeypatch.setattr(world, "remote", noting)
    await lab.responder.handle_symptom(symptom(79), [])
    found = await lab.settle()
    assert found.state is IncidentState.RETURNED
    assert [machine.port for machine in asked] == [22]
    steps = (await lab.store.incidents.get(found.number)).steps
    assert f"its host {host.address} is rebooted, with all that runs there" in [step.text for step in steps]
