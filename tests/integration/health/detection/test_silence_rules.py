"""Silent and dead nodes are suspected by the documented rules and fenced before their jobs start elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from headway.catalog.providers import LOCAL
from headway.domain.incident import FaultAction, IncidentState, Symptom
from headway.domain.machines.machine import Machine, MachineState
from headway.health.detection.agent_events import Heartbeats, OfflineAction
from headway.health.detection.silence_rules import LEASE_EXPIRED_S, find_suspects
from headway.health.policy.repair_time_limits import BOOT_S, JOBS_START_S
from tests.support.clusters import incident_cluster
from tests.support.clusters.builders import cluster
from tests.support.clusters.incident_cluster import LAB, NODE, Ward, ward

STARTED = dict.fromkeys(LAB.slot_names, 1.0)
SILENT = Heartbeats(4, {NODE: 6.0})


def test_suspects_only_silent_running_nodes_after_boot() -> None:
    assert find_suspects(SILENT, STARTED, 1000.0).nodes == (NODE,)
    assert find_suspects(Heartbeats(4, {NODE: 4.0}), STARTED, 1000.0).nodes == ()
    assert find_suspects(SILENT, {**STARTED, NODE: 950.0}, 1000.0).nodes == (), "it was started just now"
    assert find_suspects(SILENT, {}, 1000.0).nodes == (), "its machine is known to be gone"
    assert find_suspects(Heartbeats(4, {"head": 6.0}), STARTED, 1000.0).nodes == ()


def test_many_silent_nodes_are_treated_as_a_network_fault() -> None:
    three = Heartbeats(2, {"lab-1-1": 9.0, NODE: 9.0, "lab-1-3": 9.0})
    many = find_suspects(three, STARTED, 1000.0)
    assert many.nodes == ()
    assert "3 of 5 nodes are silent at once" in many.hold_reason
    assert find_suspects(three, STARTED, 1000.0, share=0.8).nodes == ("lab-1-1", NODE, "lab-1-3")
    assert find_suspects(three, STARTED, 1000.0, silent_after_s=20.0).hold_reason, "long before anybody is late"
    assert find_suspects(Heartbeats(3, {"lab-1-1": 9.0, NODE: 9.0}), STARTED, 1000.0).nodes == ("lab-1-1", NODE)
    assert find_suspects(Heartbeats(relay_away_s=9.0, silent_s={NODE: 9.0}), STARTED, 1000.0) == find_suspects(
        Heartbeats(), {}, 0.0
    )


def test_silence_share_counts_only_existing_machines() -> None:
    """The head's agent forgets no name: of slots that the file no longer has, of machines that were given back."""
    gone = {f"lab-{leaf}-{place}": 5000.0 for leaf in range(3, 11) for place in range(1, 5)}
    all_of_them = dict.fromkeys(LAB.slot_names, 9.0)
    assert "5 of 5 nodes" in find_suspects(Heartbeats(0, {**all_of_them, **gone}), STARTED, 1000.0).hold_reason
    assert find_suspects(Heartbeats(4, {NODE: 9.0, **gone}), STARTED, 1000.0).nodes == (NODE,)


async def test_empty_slots_do_not_lower_the_share_of_silent_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch that dies takes all of a cluster's four nodes, of which sixteen may be: nobody is fenced."""
    large = cluster(16, 0)
    monkeypatch.setattr(incident_cluster, "LAB", large)
    four = large.slot_names[:4]
    async with ward(tmp_path, large) as lab:
        lab.world.missing = set(large.slot_names[4:])
        lab.world.ages = {**dict.fromkeys(four, 16.0), "lab-4-4": 9000.0}
        lab.responder.empty_slots = frozenset(large.slot_names[4:])
        silent = {NODE: 5.2} | {name: 4.6 for name in four if name != NODE}
        assert (
            "probably a network fault" in (await lab.responder.handle_heartbeats(Heartbeats(0, silent), 1000.0))[0][1]
        )
        assert "fence" not in lab.world.order


async def test_silent_node_is_fenced_set_down_rebooted_and_tested(lab: Ward) -> None:
    lab.world.jobs, lab.world.fixed = {7: "RUNNING", 8: "RUNNING"}, {8}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert lab.world.order == ["ask", "ask", "fence", "down"]
    found = await lab.newest()
    assert found.fault_at == 994.0
    assert lab.world.requeued == [], "Slurm requeues the jobs of a node that is down"
    assert [moved.job for moved in found.jobs] == [7]
    assert "jobs requeued: 7; ended: 8" in [step.text for step in found.steps]
    await lab.responder.handle_heartbeats(SILENT, 1001.0)
    found = await lab.settle()
    assert [step.state.value for step in found.steps][-3:] == ["repairing", "testing", "returned"]
    assert lab.world.order[-2:] == ["start", "resume"]
    assert len(await lab.store.incidents.search("lab")) == 1


async def test_repair_waits_until_requeued_jobs_run_on_the_spare(lab: Ward) -> None:
    """A machine that is back in seconds would get them again."""
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    await lab.responder.resume_open()
    found = await lab.newest()
    assert found.state is IncidentState.JOBS_MOVED
    await lab.store.incidents.record_job_recovery(found.jobs[0], running_at=1003.0)
    await lab.responder.resume_open()
    assert (await lab.newest()).state is IncidentState.REPAIRING


async def test_node_with_a_stopped_machine_is_set_down_at_once(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    assert lab.world.machine
    lab.world.machine = replace(lab.world.machine, state=MachineState.STOPPED)
    await lab.responder.handle_heartbeats(Heartbeats(4, {NODE: 2.1}), 1000.0)
    found = await lab.newest()
    assert (found.what, found.fault_at) == ("its machine is stopped", 997.9)
    assert "ask" not in lab.world.order
    assert "down" in lab.world.order


async def test_machine_state_is_not_queried_every_second(lab: Ward) -> None:
    looked = 0

    async def machines(_: str) -> tuple[Machine, ...]:
        nonlocal looked
        looked += 1
        assert lab.world.machine
        return (lab.world.machine,)

    lab.world.list = machines  # type: ignore[method-assign]
    for second in range(4):
        assert await lab.responder.handle_heartbeats(Heartbeats(4, {NODE: 2.1 + second / 10}), 1000.0 + second) == []
    assert looked == 2


async def test_job_that_failed_as_its_node_died_is_requeued(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    lab.world.last_breath = {7: "FAILED"}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert lab.world.requeued == [7]
    lab.world.jobs = {8: "FAILED"}
    late = Symptom("x", 2000.0, NODE, 0, None, "ended", 8, "lease", FaultAction.RESTART_JOB)
    await lab.responder.handle_symptom(late, [])
    assert lab.world.requeued == [7, 8], "nor is one lost that the lease ended and that is heard of later"


async def test_job_with_batch_host_elsewhere_is_held_and_requeued_at_fencing(lab: Ward) -> None:
    """It runs on another node, and has failed by the time Slurm hears that this one is down."""
    lab.world.jobs = {7: "RUNNING", 8: "RUNNING", 9: "RUNNING"}
    lab.world.batch_hosts = {7: "lab-1-1", 8: "lab-1-1"}
    lab.world.last_breath, lab.world.codes = {7: "COMPLETING", 8: "COMPLETING"}, {7: 137}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert lab.world.order[2:] == ["hold 7 8 on lab-1-1", "fence", "down", "let go 7 8 on lab-1-1"]
    assert lab.world.requeued == [7], "8 has ended well, 9 is requeued by Slurm itself"


async def test_job_cancelled_as_its_node_died_is_not_requeued(lab: Ward) -> None:
    """Its script caught the signal, and ended with an exit code of its own."""
    jobs = (7, 8, 9, 10)
    lab.world.jobs, lab.world.batch_hosts = dict.fromkeys(jobs, "RUNNING"), dict.fromkeys(jobs, "lab-1-1")
    lab.world.last_breath = dict.fromkeys(jobs, "COMPLETING")
    lab.world.codes = {7: 1, 8: 1}
    lab.world.accounted = {7: "CANCELLED by 1000", 8: "FAILED", 9: "COMPLETED", 10: "NODE_FAIL"}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert lab.world.requeued == [8], "10 is requeued by Slurm itself"
    assert "jobs requeued: 8, 10; ended: 7, 9" in [step.text for step in (await lab.newest()).steps]


async def test_restarted_server_leaves_a_machine_recreated_by_apply_running(lab: Ward) -> None:
    assert lab.world.machine
    await lab.store.incidents.open(
        "lab", NODE, "its machine is gone", FaultAction.REBOOT, 1.0, {"dead": True, "fence": "its machine is gone"}
    )
    lab.world.machine = replace(lab.world.machine, started_at=lab.clock.now + 1.0)
    lab.world.jobs = {9: "RUNNING"}
    lab.clock.now += 5.0
    found = await lab.settle()
    assert found.state is IncidentState.RETURNED
    assert lab.world.order == ["drain", "resume"], "its new job goes on"
    assert lab.world.requeued == []


async def test_machine_recreated_by_apply_is_tested_but_not_restarted(lab: Ward) -> None:
    assert lab.world.machine
    there, lab.world.machine = lab.world.machine, None
    lab.clock.now = 1000.0
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_dead_node(NODE, "its machine is gone", at=999.0, fence="its machine is gone")
    assert (await lab.newest()).state is IncidentState.JOBS_MOVED, "its job is on its way to the spare"
    lab.world.machine, lab.world.state = replace(there, started_at=1005.0), "DOWN"
    lab.clock.now = 1010.0
    found = await lab.settle()
    assert found.state is IncidentState.RETURNED
    assert lab.world.order == ["down", "resume"]


async def test_machine_recreated_after_a_failed_repair_is_not_replaced(lab: Ward) -> None:
    lab.world.traits = LOCAL
    assert lab.world.machine
    there, lab.world.machine = lab.world.machine, None
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_dead_node(NODE, "its machine is gone", at=999.0, fence="its machine is gone")
    lab.clock.now += JOBS_START_S
    await lab.responder.resume_open()
    await asyncio.wait(list(lab.responder.tasks.running.values()))  # it has no machine to be started
    lab.clock.now += 5.0
    machines = lab.world.list

    async def made_meanwhile(name: str) -> tuple[Machine, ...]:
        if lab.world.machine is None:
            lab.world.machine, lab.world.state = replace(there, started_at=lab.clock.now + 1.0), "DOWN"
        return await machines(name)

    lab.world.list = made_meanwhile  # type: ignore[method-assign, assignment]
    found = await lab.settle()
    assert found.state is IncidentState.RETURNED
    assert "delete" not in lab.world.order
    assert lab.world.order == ["down", "resume"]


async def test_node_set_down_by_the_relay_is_repaired_and_returned(lab: Ward) -> None:
    lab.world.jobs, lab.world.state, lab.world.reason = {7: "RUNNING"}, "DOWN*", "headway: relay: no heartbeat"
    action = OfflineAction(f"deed silent {NODE} 900", 930.0, NODE, f"silent {NODE} 900", (7,))
    await lab.responder.handle_offline_action(action)
    await lab.responder.handle_offline_action(action)
    found = await lab.settle()
    assert (found.number, found.fault_at, found.state) == (1, 900.0, IncidentState.RETURNED)
    assert lab.world.order == ["fence", "down", "start", "resume"]
    assert [(moved.job, moved.requeued_at) for moved in found.jobs] == [(7, 930.0)]
    assert [step.actor for step in found.steps].count("relay") == 1


async def test_node_that_does_not_come_back_after_reboot_stays_out(lab: Ward) -> None:
    lab.world.registers = False
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    found = await lab.settle()
    assert found.state is IncidentState.OUT
    assert lab.clock.now >= 1000.0 + BOOT_S
    assert "reboot did not help" in found.steps[-1].text
    assert "resume" not in lab.world.order


async def test_silent_node_that_answers_ssh_is_left_alone(lab: Ward) -> None:
    lab.world.answers = True
    for second in range(5):
        assert await lab.responder.handle_heartbeats(SILENT, 1000.0 + second) == []
    assert lab.world.order == ["ask"]


async def test_more_silent_nodes_during_the_probe_count_as_network_fault(lab: Ward) -> None:
    lab.world.ages = {"lab-1-1": 3.5, NODE: 16.0, "lab-1-3": 4.0, "lab-1-4": 0.5, "lab-2-1": 0.5}
    ((where, why),) = await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert where == "nodes"
    assert "3 of 5 nodes are silent at once" in why
    assert lab.world.order == ["ask", "ask"]


async def test_node_drained_by_an_admin_keeps_its_drain_and_reason(lab: Ward) -> None:
    lab.world.state, lab.world.reason = "IDLE+DRAIN", "replacing the NIC"
    assert await lab.responder.handle_heartbeats(SILENT, 1000.0) == []
    assert await lab.store.incidents.search("lab") == ()
    lab.world.state, lab.world.jobs = "MIXED+DRAIN", {7: "RUNNING"}
    await lab.responder.handle_heartbeats(SILENT, 1100.0)
    assert lab.world.reason == "replacing the NIC"
    assert lab.world.order[-2:] == ["fence", "down"], "but its jobs go on elsewhere"
    assert (await lab.settle()).state is IncidentState.OUT


async def test_unfenceable_node_is_set_down_only_after_its_lease_expired(lab: Ward) -> None:
    lab.world.traits = replace(lab.world.traits, powers_off_machines=False)
    assert await lab.responder.handle_heartbeats(Heartbeats(4, {NODE: LEASE_EXPIRED_S - 1}), 1000.0) == []
    assert lab.world.order == []
    await lab.responder.handle_heartbeats(Heartbeats(4, {NODE: LEASE_EXPIRED_S}), 1001.0)
    assert lab.world.order == ["ask", "ask", "down"]
    assert "its agent lost contact" in (await lab.newest()).steps[2].text


async def test_restarted_server_fences_a_dead_node_noted_before(lab: Ward) -> None:
    await lab.store.incidents.open("lab", NODE, "no heartbeat", FaultAction.REBOOT, 1.0, {"dead": True})
    await lab.responder.resume_open()
    assert lab.world.order[:2] == ["fence", "down"]


class Killed(BaseException):
    """The process ends here: nothing in it catches that, as it does a bug."""


@pytest.mark.parametrize("started_again", [False, True])
async def test_restarted_server_requeues_jobs_that_an_interrupted_fence_ended(lab: Ward, started_again: bool) -> None:
    """They have failed by the time the next server asks what runs there."""
    lab.world.jobs, lab.world.last_breath = {7: "RUNNING"}, {7: "FAILED"}
    whole = lab.world.fence

    async def killed(_: Machine) -> None:
        await whole(_)
        raise Killed

    lab.world.fence = killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        await lab.responder.handle_heartbeats(SILENT, 1000.0)
    if started_again:
        assert lab.world.machine
        lab.world.machine = replace(lab.world.machine, state=MachineState.RUNNING, started_at=lab.clock.now + 1)
    await (await lab.another_server()).resume_open()
    assert lab.world.requeued == [7]


@pytest.mark.parametrize("noted", [{"fence": "its machine is gone"}, {"fenced": True, "had": [7]}])
async def test_restarted_server_leaves_a_returned_node_and_its_new_job_alone(
    lab: Ward, noted: dict[str, object]
) -> None:
    """An apply has made it anew since, and returned the node: a job runs there."""
    await lab.store.incidents.open("lab", NODE, "its machine is gone", FaultAction.REBOOT, 1.0, {"dead": True, **noted})
    lab.world.jobs = {8: "RUNNING"}
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.order == ["drain", "resume"]
    assert lab.world.jobs == {8: "RUNNING"}


async def test_started_machine_gets_its_boot_time_before_tests(lab: Ward) -> None:
    """Tested before that it would fail, and be given back for another."""
    await lab.store.incidents.open("lab", NODE, "its machine is stopped", FaultAction.REBOOT, 1.0, {"dead": True})
    assert lab.world.machine
    lab.world.machine = replace(lab.world.machine, started_at=lab.clock.now + 1.0)
    lab.clock.now += 2.0
    lab.world.up_at = lab.clock.now + BOOT_S / 2
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.order == ["drain", "resume"]


async def test_dead_node_is_confirmed_by_slurm_before_it_is_set_down(lab: Ward) -> None:
    assert not await lab.responder.confirm_dead(NODE, ()), "Slurm has the node in service"
    lab.world.state = "DOWN"
    assert await lab.responder.confirm_dead(NODE, ())
    lab.world.jobs = {7: "COMPLETING", 8: "RUNNING"}
    assert await lab.responder.confirm_dead(NODE, (8, 9))
    assert not await lab.responder.confirm_dead(NODE, (7,)), "the job has ended"


async def test_machine_that_runs_again_is_tested_but_not_restarted(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_dead_node(
        NODE, "its machine was restarted while jobs ran", at=990.0, runs_again=True, fence="x"
    )
    assert lab.world.order == ["down"]
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.order == ["down", "resume"]
    assert await lab.responder.handle_dead_node(NODE, "again") != []
    assert await lab.responder.handle_dead_node(NODE, "again") == [], "one incident at a time"


async def test_missing_machine_is_replaced_by_an_operation(lab: Ward) -> None:
    lab.world.machine = None
    lab.world.traits = LOCAL
    await lab.store.clusters.save("lab", {"spec": ""}, summary={}, owner="ann")
    await lab.responder.handle_dead_node(NODE, "its machine is gone", fence="its machine is gone")
    while not await lab.store.operations.recent("lab"):
        await lab.responder.sleep(0)
        await lab.responder.resume_open()
    assert lab.world.order == ["down"]
    assert replace(await lab.newest(), steps=()).state is IncidentState.REPAIRING
