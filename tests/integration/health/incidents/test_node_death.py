"""A node that dies while it has an open incident is handled within that incident."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.autoscale.provisioning_incidents import NOT_CREATED
from headway.domain.incident import FaultAction, Incident, IncidentState, Symptom
from headway.domain.machines.machine import MachineState
from headway.health.detection.agent_events import Heartbeats, OfflineAction
from headway.health.detection.silence_rules import LEASE_EXPIRED_S, PROBE_EVERY_S
from headway.health.policy.slurm_actions import DeadNode, plan_actions
from tests.support.clusters.builders import job, machine, node
from tests.support.clusters.incident_cluster import LAB, NODE, Ward, symptom

LATER = 90_000.0


def silent(ward: Ward) -> Heartbeats:
    ward.world.ages[NODE] = LEASE_EXPIRED_S + 1
    return Heartbeats(4, {NODE: LEASE_EXPIRED_S + 1})


async def resumed_past_us(lab: Ward) -> None:
    """Bob's drain kept the repair away; he has returned the node since, and a job runs there."""
    lab.world.state, lab.world.reason = "IDLE+DRAIN", "bob: disk swap"
    await lab.responder.handle_symptom(symptom(), [])
    assert (await lab.settle()).state is IncidentState.OUT
    lab.world.state, lab.world.reason, lab.world.jobs = "MIXED", "", {42: "RUNNING"}
    lab.clock.now = LATER


async def test_resumed_node_with_an_open_incident_is_fenced_when_silent(lab: Ward) -> None:
    await resumed_past_us(lab)
    await lab.responder.handle_heartbeats(silent(lab), lab.clock.now)
    assert lab.world.order == ["ask", "ask", "fence", "down"]
    found = await lab.settle()
    assert (found.number, found.action, found.state) == (1, FaultAction.RMA, IncidentState.RETURNED)
    assert [moved.job for moved in found.jobs] == [42]
    assert lab.world.order[4:] == ["start", "resume"]


async def test_resumed_node_with_a_stopped_machine_is_set_down_at_once(lab: Ward) -> None:
    await resumed_past_us(lab)
    assert lab.world.machine
    lab.world.machine = replace(lab.world.machine, state=MachineState.STOPPED)
    assert await lab.responder.handle_dead_node(NODE, "its machine is stopped", fence="its machine is stopped") != []
    assert lab.world.order == ["down"]
    assert await lab.responder.handle_dead_node(NODE, "its machine is stopped") == [], "it is being dealt with"


async def test_silent_node_out_of_service_is_probed_no_more_often(lab: Ward) -> None:
    lab.world.state, lab.world.reason = "IDLE+DRAIN", "bob: disk swap"
    await lab.responder.handle_symptom(symptom(), [])
    await lab.settle()
    asked = 0
    whole = lab.world._answer

    def answer(at: str, words: list[str]) -> tuple[int, str]:
        nonlocal asked
        asked += "show node" in " ".join(words)
        return whole(at, words)

    lab.world._answer = answer  # type: ignore[assignment, method-assign]
    for second in range(int(PROBE_EVERY_S)):
        lab.responder.dead_node_detector.checked_at[NODE] = LATER + second  # its machine runs
        assert await lab.responder.handle_heartbeats(silent(lab), LATER + second) == []
    assert asked == 1
    assert lab.world.order == []


@pytest.mark.parametrize("warned", [False, True])
async def test_node_that_dies_while_draining_is_fenced_and_repaired(lab: Ward, warned: bool) -> None:
    lab.world.jobs = {7: "RUNNING"}
    if warned:
        lab.world.scripts = {7: "#SBATCH --signal=USR1@60\n"}
    else:
        lab.world.fixed = {7}
    await lab.responder.handle_symptom(symptom(48), [])
    assert (await lab.newest()).state is IncidentState.DRAINING
    lab.clock.now = 1030.0
    await lab.responder.handle_heartbeats(silent(lab), lab.clock.now)
    assert lab.world.order[-4:] == ["ask", "ask", "fence", "down"]
    found = await lab.settle()
    assert (found.number, found.state, len(await lab.store.incidents.search("lab"))) == (1, IncidentState.RETURNED, 1)
    assert lab.world.tested == ["all"], "a double-bit error is looked for as it was"
    assert "reset 3" not in lab.world.order, "a machine that was off has had its GPUs reset"
    assert [moved.job for moved in found.jobs] == ([7] if warned else [])


async def test_unfenceable_node_records_since_when_it_was_silent(lab: Ward) -> None:
    lab.world.traits = replace(lab.world.traits, powers_off_machines=False)
    lab.world.jobs, lab.world.fixed = {7: "RUNNING"}, {7}
    await lab.responder.handle_symptom(symptom(48), [])
    lab.clock.now = 1050.0
    await lab.responder.handle_heartbeats(silent(lab), lab.clock.now)
    assert (await lab.newest()).found("at") == 1050.0 - LEASE_EXPIRED_S - 1


async def test_node_set_down_by_the_relay_during_an_open_incident_is_fenced(lab: Ward) -> None:
    await resumed_past_us(lab)
    lab.world.state, lab.world.reason, lab.world.jobs = "DOWN*", "headway: relay: no heartbeat", {42: "PENDING"}
    await lab.responder.handle_offline_action(
        OfflineAction(f"deed silent {NODE} 89000", 89030.0, NODE, f"silent {NODE} 89000", (42,))
    )
    found = await lab.settle()
    assert (found.number, found.state) == (1, IncidentState.RETURNED)
    assert lab.world.order == ["fence", "down", "start", "resume"]


def test_drained_node_counts_as_dead_only_while_jobs_hold_it() -> None:
    there = {name: machine(name) for name in (LAB.head, *LAB.slot_names)}
    nodes = {name: node(name) for name in LAB.slot_names}
    drained = node(NODE, "MIXED", "DRAIN", reason="headway: incident 3: XID 48", cpus_used=8)
    stopped = there | {NODE: machine(NODE, MachineState.STOPPED)}
    again = there | {NODE: replace(machine(NODE), started_at=1000.0)}
    stays = job(7, nodes=(NODE,), start_time=990)

    def dead(machines: dict[str, object], **changed: object) -> list[object]:
        now = nodes | {NODE: replace(drained, **changed)}  # type: ignore[arg-type]
        found = plan_actions(LAB, machines, now, [stays], frozenset({"lab-2-1"}))  # type: ignore[arg-type]
        return [one for one in found if isinstance(one, DeadNode)]

    assert dead(stopped) == [DeadNode(NODE, "its machine is stopped")]  # type: ignore[arg-type]
    (found,) = dead(again)  # type: ignore[arg-type]
    assert isinstance(found, DeadNode)
    assert (found.running, found.jobs) == (True, (7,))
    assert dead(there) == []  # type: ignore[arg-type]
    assert dead(stopped, cpus_used=0) == []  # type: ignore[arg-type]


async def unmade(lab: Ward) -> Incident:
    found = await lab.store.incidents.open("lab", NODE, NOT_CREATED, FaultAction.MAKE, 900.0, {"group": "gpu"})
    until = {"until": 2000.0}
    incident: Incident = await lab.store.incidents.add_step(
        found, IncidentState.REPAIRING, "no capacity", evidence=until
    )
    return incident


async def test_node_faults_are_separate_from_a_capacity_incident(lab: Ward) -> None:
    first = await unmade(lab)
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_symptom(symptom(), [])
    assert lab.world.requeued == [7]
    found = await lab.newest()
    assert (found.number, found.action) == (first.number + 1, FaultAction.RMA)
    line = Symptom("x", 995.0, NODE, 0, None, "/scratch is gone", kind="mounts", action=FaultAction.REBOOT)
    await lab.responder.handle_symptom(line, [])
    assert (await lab.newest()).number == found.number, "but of that one"


async def test_capacity_incident_does_not_prevent_fencing(lab: Ward) -> None:
    await unmade(lab)
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_heartbeats(silent(lab), 1000.0)
    assert lab.world.order == ["ask", "ask", "fence", "down"]
    assert (await lab.newest()).action is FaultAction.REBOOT
