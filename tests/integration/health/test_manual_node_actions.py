"""Actions of a person on a node (drain, return, reboot) are carried out and recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headway.domain.incident import FaultAction, IncidentState, Symptom
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.slurm.node_reasons import is_headway_reason
from headway.errors import Conflict, Unreachable
from headway.health import manual_node_actions, node_tests
from headway.health.incidents.return_to_service import repeat_return, return_to_service
from headway.transport.process import CommandResult
from tests.support.clusters.incident_cluster import NODE, Ward, symptom


async def test_manual_drain_stays_after_an_incident_returns_the_node(lab: Ward) -> None:
    context = lab.responder.context
    assert await manual_node_actions.drain_node(context, NODE, "disk swap", "olga") == "drained by olga: disk swap"
    assert (lab.world.state, lab.world.reason) == ("IDLE+DRAIN", "olga: disk swap")
    incident = await lab.store.incidents.open("lab", NODE, "XID 79", FaultAction.REBOOT, 1.0, {})
    incident = await lab.store.incidents.add_step(incident, IncidentState.TESTING, "t", drained=True)
    done = await return_to_service(
        context, incident, await node_tests.run_node_tests(context, NODE), IncidentState.RETURNED, "ann"
    )
    assert done.steps[-1].text == "tests passed; the node was drained by a person and stays drained"
    assert lab.world.state == "IDLE+DRAIN"


async def test_person_named_headway_drains_as_a_person(lab: Ward) -> None:
    await manual_node_actions.drain_node(lab.responder.context, NODE, "incident 3: no", "headway")
    assert not is_headway_reason(lab.world.reason)


async def test_return_requires_a_drained_and_reachable_node(lab: Ward) -> None:
    context = lab.responder.context
    lab.world.state = "IDLE"
    with pytest.raises(Conflict, match="is in service"):
        await manual_node_actions.return_node(context, NODE, "olga")
    await manual_node_actions.drain_node(context, NODE, "disk swap", "olga")
    lab.world.answers = False
    with pytest.raises(Unreachable):
        await manual_node_actions.return_node(context, NODE, "olga")
    assert lab.world.state == "IDLE+DRAIN"
    lab.world.answers = True
    assert "it was out: olga: disk swap" in await manual_node_actions.return_node(context, NODE, "olga")
    assert lab.world.state == "IDLE"


async def test_reboot_of_a_busy_node_requires_end_jobs(lab: Ward) -> None:
    context = lab.responder.context
    lab.world.jobs = {5: "RUNNING"}
    with pytest.raises(Conflict, match="jobs 5 run on"):
        await manual_node_actions.check_reboot(context, NODE, end_jobs=False)
    await manual_node_actions.check_reboot(context, NODE, end_jobs=True)
    lab.world.jobs = {}
    await manual_node_actions.check_reboot(context, NODE, end_jobs=False)


@pytest.mark.parametrize("sound", [True, False])
async def test_rebooted_node_returns_only_if_its_tests_pass(lab: Ward, sound: bool) -> None:
    world = lab.world
    world.jobs, world.sound, world.state = {}, sound, "IDLE"
    fault = await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga")
    assert [word for word in world.order if word != "ask"][:3] == ["drain", "stop", "start"]
    assert (fault == "", world.state) == (sound, "IDLE" if sound else "IDLE+DRAIN")


@pytest.mark.parametrize("busy", [False, True])
async def test_reboot_aborts_if_a_job_started_before_the_drain(lab: Ward, busy: bool) -> None:
    lab.world.jobs = {42: "RUNNING"}
    fault = await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga", end_jobs=busy)
    assert fault == ("" if busy else "not rebooted: jobs 42 run there now")
    assert ("stop" in lab.world.order, lab.world.state) == (busy, "IDLE")


async def test_interrupted_reboot_is_continued(lab: Ward) -> None:
    world, context, real = lab.world, lab.responder.context, lab.world.stop
    stopped = asyncio.Event()

    async def stop(machine: Machine) -> None:
        await real(machine)
        stopped.set()
        await asyncio.Event().wait()

    world.stop = stop  # type: ignore[method-assign]
    going = asyncio.create_task(manual_node_actions.reboot_node(context, NODE, "olga"))
    await stopped.wait()
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    assert world.machine is not None
    assert (world.machine.state, world.state) == (MachineState.STOPPED, "IDLE+DRAIN")
    assert await manual_node_actions.person_rebooting(context, NODE) == "olga"
    world.stop = real  # type: ignore[method-assign]
    assert await manual_node_actions.reboot_node(context, NODE, "olga") == ""
    assert (world.machine.state, world.state) == (MachineState.RUNNING, "IDLE")
    assert await manual_node_actions.person_rebooting(context, NODE) == ""


async def test_failed_reboot_is_not_continued(lab: Ward) -> None:
    lab.world.sound = False
    assert await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga") == "mounts: /scratch is gone"
    assert lab.world.reason == "olga: reboot: mounts: /scratch is gone"
    assert await manual_node_actions.person_rebooting(lab.responder.context, NODE) == ""


async def test_reboot_keeps_an_earlier_manual_drain(lab: Ward) -> None:
    lab.world.jobs = {}
    await manual_node_actions.drain_node(lab.responder.context, NODE, "disk swap", "olga")
    assert await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga") == ""
    assert (lab.world.state, lab.world.reason) == ("IDLE+DRAIN", "olga: disk swap")


async def test_lost_return_is_repeated_only_for_finished_incidents(
    lab: Ward,
) -> None:
    """slurmctld is killed within seconds of it, and comes back with the state that it had written before."""
    context = lab.responder.context
    incident = await lab.store.incidents.open("lab", NODE, "XID 79", FaultAction.REBOOT, 1.0, {})
    lab.world.state, lab.world.reason = "DOWN", f"headway: incident {incident.number}: XID 79"
    incident = await lab.store.incidents.add_step(incident, IncidentState.TESTING, "t", drained=True)
    assert await repeat_return(context, NODE) == ""
    await lab.store.incidents.add_step(incident, IncidentState.OUT, "fails too often")
    assert await repeat_return(context, NODE) == ""
    incident = await lab.store.incidents.add_step(incident, IncidentState.TESTING, "t")
    passed = {"passed": ["daemons"]}
    await lab.store.incidents.add_step(
        incident, IncidentState.RETURNED, "tests passed; back in service", evidence=passed
    )
    assert await repeat_return(context, "lab-1-1") == "", "another node's"
    mine = lab.world.reason
    for other in ("headway: incident 99: XID 79", f"headway: incident {incident.number}: XID 48"):
        lab.world.reason = other
        assert await repeat_return(context, NODE) == "", "not ours"
    lab.world.reason = mine
    newer = await lab.store.incidents.open("lab", NODE, "XID 94", FaultAction.RESET, 2.0, {})
    assert await repeat_return(context, NODE) == "", "another fault of it is open"
    await lab.store.incidents.add_step(newer, IncidentState.FALSE_ALARM, "none")
    assert lab.world.state == "DOWN"
    assert "back in service" in await repeat_return(context, NODE)
    assert lab.world.state == "IDLE"
    lab.world.reason = "olga: the fan"
    assert await repeat_return(context, NODE) == "", "a person's by now"


def taken_for_a_fault(lab: Ward, *symptoms: Symptom, late: bool = False) -> None:
    """The watch finds the machine stopped under its jobs while a person's reboot has stopped it."""
    turn = "start" if late else "stop"
    real = getattr(lab.world, turn)

    async def turned(machine: Machine) -> None:
        await real(machine)
        what = "its machine was restarted while jobs ran" if late else "its machine is stopped"
        await lab.responder.handle_dead_node(NODE, what, at=lab.clock(), runs_again=late, fence=what)
        lab.world.state = lab.world.state.rstrip("*") if late else lab.world.state
        for one in symptoms:
            await lab.responder.handle_symptom(one, [])

    setattr(lab.world, turn, turned)


@pytest.mark.parametrize("late", [False, True])
async def test_incident_caused_by_a_manual_reboot_ends_with_its_tests(lab: Ward, late: bool) -> None:
    lab.world.jobs = {42: "RUNNING"}
    taken_for_a_fault(lab, late=late)
    assert await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga", end_jobs=True) == ""
    found = await lab.newest()
    assert (lab.world.state, found.state, found.score) == ("IDLE", IncidentState.RETURNED, 0)
    assert [moved.job for moved in found.jobs] == [42]


async def test_incident_caused_by_a_continued_reboot_ends_with_its_tests(lab: Ward) -> None:
    lab.world.state, lab.world.reason = "IDLE+DRAIN", "olga: reboot, returned once its tests have passed"
    await lab.world.stop(await lab.responder.context.running_machine(NODE))
    await lab.responder.handle_dead_node(NODE, "its machine is stopped", at=lab.clock(), fence="its machine is stopped")
    lab.clock.now += 60
    assert await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga") == ""
    assert (lab.world.state, (await lab.newest()).state) == ("IDLE", IncidentState.RETURNED)


async def test_gpu_error_during_a_manual_reboot_keeps_the_node_drained(lab: Ward) -> None:
    taken_for_a_fault(lab, symptom(79, at=999.0))
    fault = await manual_node_actions.reboot_node(lab.responder.context, NODE, "olga")
    found = await lab.newest()
    assert fault == f"incident {found.number} is open: headway incident return {found.number} first"
    assert lab.world.reason == found.reasons[0]
    assert (await lab.bring_back(found.number, "olga")).state is IncidentState.RETURNED
    assert lab.world.state == "IDLE"


async def test_manual_reboot_waits_a_limited_time_for_an_unfinished_incident(lab: Ward) -> None:
    taken_for_a_fault(lab)
    lab.world.jobs, lab.world.codes, lab.world.stuck = {42: "COMPLETING"}, {42: 1}, {42}
    assert "incident 1 is open" in await manual_node_actions.reboot_node(
        lab.responder.context, NODE, "olga", end_jobs=True
    )
    assert (await lab.newest()).state is IncidentState.DRAINING
    assert lab.world.reason == (await lab.newest()).reasons[0]
    lab.world.stuck = set()
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert (lab.world.state, lab.world.requeued) == ("IDLE", [42])


async def test_longer_diagnostic_runs_only_when_asked_for(lab: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = lab.world.remote, []

    async def noting(at: Machine, argv: Sequence[str], **how: Any) -> CommandResult:
        if "test" in argv and "all" in argv:
            asked.append("--dcgm-level" in argv)
        return await real(at, argv, **how)

    monkeypatch.setattr(lab.world, "remote", noting)
    for long in (False, True):
        await node_tests.run_node_tests(lab.responder.context, NODE, thorough=True, long=long)
    assert asked == [False, True]
