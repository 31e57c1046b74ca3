"""Silent and dead nodes are suspected by the documented rules and fenced before their jobs start elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from headway.catalog.providers import LOCAL
from headway.domain.incident import FaultAction, IncidentState, Signal
from headway.domain.machine import Machine, MachineState
from headway.health.detection.event_stream import Heartbeats, OfflineAction
from headway.health.detection.silence_rules import LEASE_EXPIRED_S, find_suspects
from headway.health.incidents.repair import BOOT_S, JOBS_START_S
from tests.support import incident_cluster
from tests.support.builders import cluster
from tests.support.incident_cluster import LAB, NODE, Ward, ward

STARTED = dict.fromkeys(LAB.slot_names, 1.0)
SILENT = Heartbeats(4, {NODE: 6.0})


def test_a_node_is_suspected_alone_and_not_while_it_boots() -> None:
    assert find_suspects(SILENT, STARTED, 1000.0).nodes == (NODE,)
    assert find_suspects(Heartbeats(4, {NODE: 4.0}), STARTED, 1000.0).nodes == ()
    assert find_suspects(SILENT, {**STARTED, NODE: 950.0}, 1000.0).nodes == (), "it was started just now"
    assert find_suspects(SILENT, {}, 1000.0).nodes == (), "its machine is known to be gone"
    assert find_suspects(Heartbeats(4, {"head": 6.0}), STARTED, 1000.0).nodes == ()


def test_many_at_once_are_the_network_and_a_relay_that_is_away_says_nothing() -> None:
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


def test_only_machines_that_are_there_count() -> None:
    """The head's agent forgets no name: of slots that the file no longer has, of machines that were given back."""
    gone = {f"lab-{leaf}-{place}": 5000.0 for leaf in range(3, 11) for place in range(1, 5)}
    all_of_them = dict.fromkeys(LAB.slot_names, 9.0)
    assert "5 of 5 nodes" in find_suspects(Heartbeats(0, {**all_of_them, **gone}), STARTED, 1000.0).hold_reason
    assert find_suspects(Heartbeats(4, {NODE: 9.0, **gone}), STARTED, 1000.0).nodes == (NODE,)


async def test_empty_slots_are_nobody_who_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_it_is_fenced_first_then_down_then_rebooted_and_tested(lab: Ward) -> None:
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


async def test_a_repair_waits_until_its_jobs_run_on_the_spare(lab: Ward) -> None:
    """A machine that is back in seconds would get them again."""
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    await lab.responder.resume_open()
    found = await lab.newest()
    assert found.state is IncidentState.JOBS_MOVED
    await lab.store.incidents.record_job_recovery(found.jobs[0], running_at=1003.0)
    await lab.responder.resume_open()
    assert (await lab.newest()).state is IncidentState.REPAIRING


async def test_a_node_whose_machine_does_not_run_is_down_at_once(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    assert lab.world.machine
    lab.world.machine = replace(lab.world.machine, state=MachineState.STOPPED)
    await lab.responder.handle_heartbeats(Heartbeats(4, {NODE: 2.1}), 1000.0)
    found = await lab.newest()
    assert (found.what, found.fault_at) == ("its machine is stopped", 997.9)
    assert "ask" not in lab.world.order
    assert "down" in lab.world.order


async def test_a_machine_that_runs_is_not_looked_at_each_second(lab: Ward) -> None:
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


async def test_a_job_that_failed_in_the_node_s_last_breath_is_requeued_too(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    lab.world.last_breath = {7: "FAILED"}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert lab.world.requeued == [7]
    lab.world.jobs = {8: "FAILED"}
    late = Signal("x", 2000.0, NODE, 0, None, "ended", 8, "lease", FaultAction.RESTART_JOB)
    await lab.responder.handle_signal(late, [])
    assert lab.world.requeued == [7, 8], "nor is one lost that the lease ended and that is heard of later"


async def test_a_script_whose_tasks_the_fence_cuts_off_is_held_and_requeued(lab: Ward) -> None:
    """It runs on another node, and has failed by the time Slurm hears that this one is down."""
    lab.world.jobs = {7: "RUNNING", 8: "RUNNING", 9: "RUNNING"}
    lab.world.batch_hosts = {7: "lab-1-1", 8: "lab-1-1"}
    lab.world.last_breath, lab.world.codes = {7: "COMPLETING", 8: "COMPLETING"}, {7: 137}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert lab.world.order[2:] == ["hold 7 8 on lab-1-1", "fence", "down", "let go 7 8 on lab-1-1"]
    assert lab.world.requeued == [7], "8 has ended well, 9 is requeued by Slurm itself"


async def test_one_that_was_cancelled_as_its_node_died_does_not_come_back(lab: Ward) -> None:
    """Its script caught the signal, and ended with an exit code of its own."""
    jobs = (7, 8, 9, 10)
    lab.world.jobs, lab.world.batch_hosts = dict.fromkeys(jobs, "RUNNING"), dict.fromkeys(jobs, "lab-1-1")
    lab.world.last_breath = dict.fromkeys(jobs, "COMPLETING")
    lab.world.codes = {7: 1, 8: 1}
    lab.world.accounted = {7: "CANCELLED by 1000", 8: "FAILED", 9: "COMPLETED", 10: "NODE_FAIL"}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert lab.world.requeued == [8], "10 is requeued by Slurm itself"
    assert "jobs requeued: 8, 10; ended: 7, 9" in [step.text for step in (await lab.newest()).steps]


async def test_who_was_killed_after_noting_disturbs_no_machine_that_an_apply_made_since(lab: Ward) -> None:
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


async def test_a_machine_that_an_apply_made_meanwhile_is_tested_and_not_started_again(lab: Ward) -> None:
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


async def test_a_machine_that_an_apply_made_after_a_repair_failed_is_not_replaced(lab: Ward) -> None:
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


async def test_a_silence_that_the_relay_dealt_with_ends_like_any_other(lab: Ward) -> None:
    lab.world.jobs, lab.world.state, lab.world.reason = {7: "RUNNING"}, "DOWN*", "headway: relay: no heartbeat"
    deed = OfflineAction(f"deed silent {NODE} 900", 930.0, NODE, f"silent {NODE} 900", (7,))
    await lab.responder.handle_offline_action(deed)
    await lab.responder.handle_offline_action(deed)
    found = await lab.settle()
    assert (found.number, found.fault_at, found.state) == (1, 900.0, IncidentState.RETURNED)
    assert lab.world.order == ["fence", "down", "start", "resume"]
    assert [(moved.job, moved.requeued_at) for moved in found.jobs] == [(7, 930.0)]
    assert [step.actor for step in found.steps].count("relay") == 1


async def test_a_node_that_does_not_come_back_is_out_of_service(lab: Ward) -> None:
    lab.world.registers = False
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    found = await lab.settle()
    assert found.state is IncidentState.OUT
    assert lab.clock.now >= 1000.0 + BOOT_S
    assert "reboot did not help" in found.steps[-1].text
    assert "resume" not in lab.world.order


async def test_a_node_that_answers_otherwise_is_left_alone_and_not_asked_each_second(lab: Ward) -> None:
    lab.world.answers = True
    for second in range(5):
        assert await lab.responder.handle_heartbeats(SILENT, 1000.0 + second) == []
    assert lab.world.order == ["ask"]


async def test_others_that_fell_silent_while_it_was_asked_make_it_the_network(lab: Ward) -> None:
    lab.world.ages = {"lab-1-1": 3.5, NODE: 16.0, "lab-1-3": 4.0, "lab-1-4": 0.5, "lab-2-1": 0.5}
    ((where, why),) = await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert where == "nodes"
    assert "3 of 5 nodes are silent at once" in why
    assert lab.world.order == ["ask", "ask"]


async def test_what_a_person_switched_off_is_theirs(lab: Ward) -> None:
    lab.world.state, lab.world.reason = "IDLE+DRAIN", "replacing the NIC"
    assert await lab.responder.handle_heartbeats(SILENT, 1000.0) == []
    assert await lab.store.incidents.search("lab") == ()
    lab.world.state, lab.world.jobs = "MIXED+DRAIN", {7: "RUNNING"}
    await lab.responder.handle_heartbeats(SILENT, 1100.0)
    assert lab.world.reason == "replacing the NIC"
    assert lab.world.order[-2:] == ["fence", "down"], "but its jobs go on elsewhere"
    assert (await lab.settle()).state is IncidentState.OUT


async def test_where_nobody_can_fence_the_lease_has_ended_the_jobs_first(lab: Ward) -> None:
    lab.world.traits = replace(lab.world.traits, powers_off_machines=False)
    assert await lab.responder.handle_heartbeats(Heartbeats(4, {NODE: LEASE_EXPIRED_S - 1}), 1000.0) == []
    assert lab.world.order == []
    await lab.responder.handle_heartbeats(Heartbeats(4, {NODE: LEASE_EXPIRED_S}), 1001.0)
    assert lab.world.order == ["ask", "ask", "down"]
    assert "its agent lost contact" in (await lab.newest()).steps[2].text


async def test_who_was_killed_between_noting_and_fencing_fences_when_back(lab: Ward) -> None:
    await lab.store.incidents.open("lab", NODE, "no heartbeat", FaultAction.REBOOT, 1.0, {"dead": True})
    await lab.responder.resume_open()
    assert lab.world.order[:2] == ["fence", "down"]


class Killed(BaseException):
    """The process ends here: nothing in it catches that, as it does a bug."""


@pytest.mark.parametrize("started_again", [False, True])
async def test_who_was_killed_while_fencing_requeues_what_the_fence_ended(lab: Ward, started_again: bool) -> None:
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
async def test_who_was_killed_before_setting_down_lets_the_next_life_of_the_machine_be(
    lab: Ward, noted: dict[str, object]
) -> None:
    """An apply has made it anew since, and returned the node: a job runs there."""
    await lab.store.incidents.open("lab", NODE, "its machine is gone", FaultAction.REBOOT, 1.0, {"dead": True, **noted})
    lab.world.jobs = {8: "RUNNING"}
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.order == ["drain", "resume"]
    assert lab.world.jobs == {8: "RUNNING"}


async def test_a_machine_that_somebody_has_just_started_has_its_time_to_boot_before_it_is_tested(lab: Ward) -> None:
    """Tested before that it would fail, and be given back for another."""
    await lab.store.incidents.open("lab", NODE, "its machine is stopped", FaultAction.REBOOT, 1.0, {"dead": True})
    assert lab.world.machine
    lab.world.machine = replace(lab.world.machine, started_at=lab.clock.now + 1.0)
    lab.clock.now += 2.0
    lab.world.up_at = lab.clock.now + BOOT_S / 2
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.order == ["drain", "resume"]


async def test_what_an_older_reading_says_is_asked_again_before_a_running_machine_is_set_down(lab: Ward) -> None:
    assert not await lab.responder.confirm_dead(NODE, ()), "Slurm has the node in service"
    lab.world.state = "DOWN"
    assert await lab.responder.confirm_dead(NODE, ())
    lab.world.jobs = {7: "COMPLETING", 8: "RUNNING"}
    assert await lab.responder.confirm_dead(NODE, (8, 9))
    assert not await lab.responder.confirm_dead(NODE, (7,)), "the job has ended"


async def test_a_machine_that_runs_again_already_is_tested_and_not_started_again(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_dead_node(
        NODE, "its machine was restarted while jobs ran", at=990.0, runs_again=True, fence="x"
    )
    assert lab.world.order == ["down"]
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.order == ["down", "resume"]
    assert await lab.responder.handle_dead_node(NODE, "again") != []
    assert await lab.responder.handle_dead_node(NODE, "again") == [], "one incident at a time"


async def test_a_machine_that_is_gone_can_only_be_replaced(lab: Ward) -> None:
    lab.world.machine = None
    lab.world.traits = LOCAL
    await lab.store.clusters.save("lab", {"spec": ""}, summary={}, owner="ann")
    await lab.responder.handle_dead_node(NODE, "its machine is gone", fence="its machine is gone")
    while not await lab.store.operations.recent("lab"):
        await lab.responder.sleep(0)
        await lab.responder.resume_open()
    assert lab.world.order == ["down"]
    assert replace(await lab.newest(), steps=()).state is IncidentState.REPAIRING
