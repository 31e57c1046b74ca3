"""Symptoms open, join and close incidents and send the right drain, requeue, repair and return commands to Slurm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway.domain.incident import FaultAction, Incident, IncidentState, Symptom
from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed, Conflict, NotFound, Unreachable
from headway.health.detection.agent_events import OfflineAction
from headway.health.incidents.engine import MAX_FAULTS_PER_PASS
from headway.health.incidents.measured_times import incident_timings
from headway.health.incidents.recovery_tracking import track_recovery
from headway.health.incidents.return_to_service import return_to_service
from headway.health.node_tests import NodeTestOutcome, NodeTestReport
from headway.store import StoreUnavailable
from tests.support.clusters import builders
from tests.support.clusters.builders import job
from tests.support.clusters.incident_cluster import LAB, NODE, Ward, symptom, ward

HANDS_ON = replace(LAB, health=builders.health(xid_classes={79: "hands_on"}))


@pytest.fixture
async def careful(tmp_path: Path) -> AsyncIterator[Ward]:
    """XID 79 waits for a person here."""
    async with ward(tmp_path, HANDS_ON) as made:
        yield made


async def test_gpu_error_drains_requeues_repairs_tests_and_returns_the_node(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING", 8: "RUNNING"}
    messages = await lab.responder.handle_symptom(symptom(), [job(7, nodes=(NODE,), gpu_indexes={NODE: (3,)})])
    assert lab.world.reason == "headway: incident 1: XID 79: GPU has fallen off the bus"
    assert lab.world.requeued == [7, 8]
    assert (NODE, "jobs requeued: 7, 8") in messages
    assert lab.world.released == 1, "the epilog need not wait any longer"
    found = await lab.settle()
    assert [step.state.value for step in found.steps] == [
        "seen", "draining", "draining", "jobs moved", "repairing", "testing", "returned",
    ]  # fmt: skip
    assert found.steps[0].evidence["job"] == 7, "the job that held the GPU"
    assert lab.world.order == ["drain", "stop", "start", "resume"]
    assert found.steps[-1].evidence["passed"] == ["daemons", "gpus", "mounts"]
    assert lab.world.tested == ["all"], "an error as heavy as this one needs the hard tests"


async def test_errors_on_a_rolling_node_without_jobs_open_no_incident(lab: Ward) -> None:
    lab.world.state, lab.world.reason = "IDLE+DRAIN", "headway: rolls"
    messages = await lab.responder.handle_symptom(symptom(at=900.0), [])
    assert messages == [(NODE, "XID 79: GPU has fallen off the bus; the tests of its roll decide; recorded")]
    assert await lab.store.incidents.search("lab") == ()
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_symptom(symptom(), [])
    assert lab.world.requeued == [7]
    assert (await lab.newest()).node == NODE


async def test_job_that_failed_just_around_a_gpu_error_is_requeued(lab: Ward) -> None:
    lab.world.ended = {7: 990, 8: 700, 9: 994}  # the error: 990
    lab.world.jobs = {7: "FAILED", 8: "FAILED", 9: "FAILED"}
    await lab.responder.handle_symptom(symptom(), [])
    assert lab.world.requeued == [7, 9]


async def test_only_the_known_gpu_holder_is_requeued_among_failed_jobs(lab: Ward) -> None:
    lab.world.ended, lab.world.jobs = {7: 990, 8: 991}, {7: "FAILED", 8: "FAILED"}
    await lab.responder.handle_symptom(symptom(job=7), [])
    assert lab.world.requeued == [7]


async def test_repeated_symptoms_join_one_incident(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_symptom(symptom(), [])
    assert await lab.responder.handle_symptom(symptom(), []) == []
    await lab.responder.handle_symptom(symptom(at=991.0), [])
    await lab.responder.handle_symptom(symptom(45, at=992.0), [])
    assert lab.world.requeued == [7]
    (found,) = await lab.store.incidents.search("lab")
    assert found.last_symptom_at == 992.0


async def test_error_during_tests_leads_to_the_next_repair(lab: Ward) -> None:
    lab.world.gpus_after_reset = 8
    await lab.responder.handle_symptom(symptom(46), [])
    while (await lab.newest()).state is not IncidentState.TESTING:
        await lab.responder.sleep(0)
        await lab.responder.resume_open()
    await lab.responder.handle_symptom(symptom(46, at=1100.0), [])
    await lab.settle()
    assert lab.world.order == ["drain", "reset 3", "stop", "start", "resume"], "the next repair"


async def test_completing_job_is_awaited_and_requeued_once(lab: Ward) -> None:
    lab.world.jobs, lab.world.leaves = {7: "RUNNING"}, False
    await lab.responder.handle_symptom(symptom(), [])
    assert (await lab.newest()).state is IncidentState.DRAINING
    await lab.responder.resume_open()
    assert lab.world.requeued == [7]
    lab.world.jobs = {}
    await (await lab.another_server()).resume_open()
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.requeued == [7]


async def test_job_without_requeue_stays_on_the_node_and_is_named(lab: Ward) -> None:
    lab.world.jobs, lab.world.fixed = {7: "RUNNING", 8: "RUNNING"}, {8}
    await lab.responder.handle_symptom(symptom(), [])
    found = await lab.newest()
    assert found.state is IncidentState.DRAINING
    assert found.steps[-1].text == "jobs requeued: 7; not to be requeued: 8"


async def test_job_killed_by_the_fault_is_requeued(lab: Ward) -> None:
    lab.world.jobs = {7: "FAILED"}
    await lab.responder.handle_symptom(symptom(job=7), [])
    assert lab.world.requeued == [7]


async def test_jobs_with_a_signal_option_are_warned_before_requeue(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING", 8: "RUNNING", 9: "RUNNING"}
    lab.world.scripts = {8: "#!/bin/sh\n#SBATCH --signal=USR1@30\n", 7: "#!/bin/sh\n#SBATCH --signal=B:TERM\n"}
    await lab.responder.handle_symptom(symptom(48, job=7), [])
    assert lab.world.order == ["drain", "signal 8 --signal=USR1"]
    assert lab.world.requeued == [7, 9]
    lab.clock.now += 29
    await lab.responder.resume_open()
    assert lab.world.requeued == [7, 9]
    lab.clock.now += 2
    await lab.responder.resume_open()
    assert lab.world.requeued == [7, 9, 8]
    assert (await lab.settle()).state is IncidentState.RETURNED


async def test_warned_job_that_ends_by_itself_is_requeued(lab: Ward) -> None:
    lab.world.jobs, lab.world.scripts = {8: "RUNNING"}, {8: "#SBATCH --signal USR1@600\n"}
    await lab.responder.handle_symptom(symptom(48), [])
    lab.world.jobs = {8: "COMPLETING"}  # its epilog holds it there
    await lab.responder.resume_open()
    assert lab.world.requeued == [8]


async def test_third_application_error_in_a_day_opens_an_incident(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    messages = await lab.responder.handle_symptom(symptom(31, job=7), [])
    assert messages == [(NODE, "XID 31: GPU memory page fault; caused by the job: the node is not drained")]
    assert (lab.world.state, lab.world.requeued, lab.world.released) == ("IDLE", [], 1)
    assert await lab.store.incidents.search("lab") == ()
    await lab.responder.handle_symptom(symptom(31, job=8, at=995.0), [])
    await lab.responder.handle_symptom(symptom(31, job=9, at=996.0), [])
    assert "3 different jobs" in (await lab.settle()).what
    await lab.responder.handle_symptom(symptom(31, job=10, at=2000.0), [])
    assert len(await lab.store.incidents.search("lab")) == 1, "those of before are dealt with"


async def test_application_errors_right_after_a_repair_count(lab: Ward) -> None:
    await lab.responder.handle_symptom(symptom(46), [])
    await lab.settle()
    for number in (1, 2, 3):
        await lab.responder.handle_symptom(symptom(31, job=number, at=lab.clock.now + number), [])
    assert "3 different jobs" in (await lab.newest()).what


async def test_contained_error_restarts_only_its_job(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING", 8: "RUNNING"}
    await lab.responder.handle_symptom(symptom(94, job=7), [])
    assert (lab.world.state, lab.world.requeued) == ("IDLE", [7])
    assert (await lab.newest()).state is IncidentState.RETURNED
    await lab.responder.handle_symptom(symptom(79, at=995.0), [])
    assert lab.world.state == "IDLE+DRAIN", "something worse within the same burst"


async def test_admin_drain_is_kept_during_repair_and_return(lab: Ward) -> None:
    lab.world.state, lab.world.reason = "IDLE+DRAIN", "replacing the NIC"
    await lab.responder.handle_symptom(symptom(), [])
    assert (await lab.settle()).state is IncidentState.OUT
    assert lab.world.order == [], "nor is it rebooted under their hands"
    await lab.bring_back(1, "ann")
    assert (lab.world.state, lab.world.reason) == ("IDLE+DRAIN", "replacing the NIC")


async def test_drain_taken_over_by_an_admin_is_kept(careful: Ward) -> None:
    await careful.responder.handle_symptom(symptom(), [])
    careful.world.reason = "mine now"
    await careful.bring_back(1, "ann")
    assert careful.world.state == "IDLE+DRAIN"


async def test_admin_returns_a_node_only_after_its_tests_pass(careful: Ward) -> None:
    await careful.responder.handle_symptom(symptom(), [])
    careful.world.gpus = 7
    stays = await careful.bring_back(1, "ann")
    assert stays.state is IncidentState.OUT
    assert "lists 7 GPUs, not 8" in stays.steps[-1].text
    assert "DRAIN" in careful.world.state
    careful.world.gpus = 8
    back = await careful.bring_back(1, "ann", false_alarm=True)
    assert (back.state, back.steps[-1].actor) == (IncidentState.FALSE_ALARM, "ann")
    assert careful.world.state == "IDLE"
    with pytest.raises(Conflict, match="is over"):
        await careful.responder.return_node(1, "ann", false_alarm=False)
    with pytest.raises(NotFound):
        await careful.responder.return_node(99, "ann", false_alarm=False)


async def test_return_requested_on_a_standby_server_is_tested_by_the_leader(careful: Ward) -> None:
    await careful.responder.handle_symptom(symptom(), [])
    asked = await careful.another_server()
    assert await asked.return_node(1, "ann", false_alarm=False, begin=False) is None
    assert asked.tasks.running == {}
    assert (await careful.newest()).state is IncidentState.TESTING
    with pytest.raises(Conflict, match="is testing"):
        await asked.return_node(1, "bob", false_alarm=False, begin=False)
    back = await careful.settle()
    assert (back.state, back.steps[-1].actor) == (IncidentState.RETURNED, "ann")


async def test_fenced_machine_is_started_before_its_return(careful: Ward) -> None:
    await careful.responder.handle_symptom(symptom(), [])
    assert (await careful.settle()).state is IncidentState.OUT
    await careful.world.stop(careful.world.machine)  # type: ignore[arg-type]
    back = await careful.bring_back(1, "ann")
    assert back.state is IncidentState.RETURNED
    assert careful.world.order.index("stop") < careful.world.order.index("start")
    assert careful.world.state == "IDLE"


async def test_untested_node_cannot_be_returned(careful: Ward) -> None:
    await careful.responder.handle_symptom(symptom(), [])
    found = await careful.settle()
    for results in ((), (NodeTestOutcome("gpus", False, "7 GPUs"),)):
        with pytest.raises(ValueError, match="incident 1"):
            await return_to_service(
                careful.responder.context, found, NodeTestReport(NODE, results), IncidentState.RETURNED, "headway"
            )
    with pytest.raises(ValueError, match="untested"):
        await careful.store.incidents.add_step(found, IncidentState.RETURNED, "it will do")
    assert careful.world.state == "IDLE+DRAIN"


async def test_incident_names_the_tests_that_were_skipped(careful: Ward) -> None:
    await careful.responder.handle_symptom(symptom(), [])
    found = await careful.settle()
    results = NodeTestOutcome("memory", True), NodeTestOutcome("peer", True, "the node has one GPU", skipped=True)
    back = await return_to_service(
        careful.responder.context, found, NodeTestReport(NODE, results), IncidentState.RETURNED, "headway"
    )
    assert back.current[-1].text == "tests passed; back in service; skipped: peer: the node has one GPU"
    assert back.current[-1].evidence["passed"] == ["memory"]


async def test_node_resumed_by_hand_is_drained_at_the_next_fault(careful: Ward) -> None:
    careful.world.jobs = {7: "RUNNING"}
    await careful.responder.handle_symptom(symptom(), [])
    careful.world.state, careful.world.reason, careful.world.jobs = "IDLE", "", {7: "RUNNING", 9: "RUNNING"}
    await careful.responder.handle_symptom(symptom(at=5000.0), [])
    assert careful.world.state == "IDLE+DRAIN"
    assert careful.world.requeued == [7, 7, 9]
    assert len(await careful.store.incidents.search("lab")) == 1


async def test_actions_of_the_relay_are_not_repeated(careful: Ward) -> None:
    """The server was away: the head's agent drained and requeued; the job runs elsewhere, and has failed there since."""
    careful.world.state, careful.world.reason = "IDLE+DRAIN", "headway: relay: XID 79"
    careful.world.jobs = {7: "FAILED"}
    one = symptom(job=7)
    await careful.responder.handle_offline_action(OfflineAction(f"deed {one.id}", 991.0, NODE, one.id, requeued=(7,)))
    await careful.responder.handle_symptom(one, [])
    assert careful.world.requeued == []
    found = await careful.settle()
    assert found.state is IncidentState.OUT
    assert [step.actor for step in found.steps][:2] == ["headway", "relay"]
    assert incident_timings(found).requeue_s == 1.0


async def test_requeued_job_is_tracked_until_it_runs_and_reports_a_step(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_symptom(symptom(), [])
    context = lab.responder.context
    assert not await track_recovery(context, [job(7, "PENDING")], {}), "it waits in the queue: no report can come"
    assert not await track_recovery(context, [job(7, start_time=900)], {}), "the old run, as last read"
    assert await track_recovery(context, [job(7, start_time=1012)], {7: 1000.0}), "an old report"
    assert not await track_recovery(context, [job(7, start_time=1012)], {7: 1020.5})
    found = incident_timings(await lab.newest())
    assert (found.detect_s, found.requeue_s, found.running_s, found.step_s) == (10.0, 10.0, 22.0, 30.5)


async def test_job_that_ended_between_polls_still_reports_its_recovery(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_symptom(symptom(), [])
    context, over = lab.responder.context, job(7, "COMPLETED", start_time=1012, end_time=1014)
    later = replace(context, clock=lambda: 1014 + 121.0)
    assert await track_recovery(context, [over], {}), "its last words are read yet"
    assert not await track_recovery(later, [over], {}), "it said nothing"
    assert not await track_recovery(context, [over], {7: 1013.5})
    assert incident_timings(await lab.newest()).step_s == 23.5


async def test_agent_checks_open_incidents_like_kernel_errors(lab: Ward) -> None:
    one = Symptom("x", 990.0, NODE, 0, None, "2 of 4 links are down", kind="ib", action=FaultAction.REBOOT)
    await lab.responder.handle_symptom(one, [])
    found = await lab.settle()
    assert (found.what, found.state) == ("2 of 4 links are down", IncidentState.RETURNED)
    later = replace(one, id="y", at=5000.0, action=None)
    assert await lab.responder.handle_symptom(later, []) == [(NODE, f"{one.text}; recorded and watched")]


async def test_symptoms_of_unknown_nodes_are_ignored(lab: Ward) -> None:
    assert await lab.responder.handle_symptom(symptom(node="elsewhere-1-1"), []) == []


async def test_late_symptom_from_before_the_repair_ended_opens_no_incident(lab: Ward) -> None:
    await lab.responder.handle_symptom(symptom(46), [])
    found = await lab.settle()
    late = Symptom("late", 999.0, NODE, 0, 3, "gpu_count: 7 of 8", kind="gpu_count", action=FaultAction.REBOOT)
    assert found.steps[-1].at >= late.at
    await lab.responder.handle_symptom(late, [])
    assert len(await lab.store.incidents.search("lab")) == 1
    assert lab.world.order == ["drain", "reset 3", "resume"]
    await lab.responder.handle_symptom(replace(late, id="later", at=lab.clock.now + 60), [])
    assert len(await lab.store.incidents.search("lab")) == 2


async def test_error_after_the_tests_began_opens_a_new_incident(lab: Ward) -> None:
    await lab.responder.handle_symptom(symptom(46), [])
    while (await lab.newest()).state is not IncidentState.TESTING:
        await lab.responder.sleep(0)
        await lab.responder.resume_open()
    began = lab.clock.now
    lab.clock.now += 30.0
    ended = (await lab.settle()).steps[-1].at
    assert began < ended
    await lab.responder.handle_symptom(symptom(48, at=began - 1.0), [])
    assert len(await lab.store.incidents.search("lab")) == 1, "an echo"
    await lab.responder.handle_symptom(symptom(48, at=ended - 10.0), [])
    assert len(await lab.store.incidents.search("lab")) == 2
    assert lab.world.state == "IDLE+DRAIN"


async def test_watch_only_cluster_records_incidents_without_acting(tmp_path: Path) -> None:
    async with ward(tmp_path, replace(LAB, health=builders.health(act=False))) as lab:
        lab.world.jobs = {7: "RUNNING"}
        await lab.responder.handle_symptom(symptom(), [])
        await lab.responder.handle_dead_node(NODE, "its machine is stopped")
        found = await lab.settle()
        assert (found.state, lab.world.order, lab.world.requeued) == (IncidentState.SEEN, [], [])


def orphan(job_id: int, at: float) -> Symptom:
    return Symptom(
        f"o{job_id}-{at}", at, NODE, 0, None, "its slurmstepd died", job_id, "orphan", FaultAction.RESTART_JOB
    )


async def test_running_job_with_a_dead_slurmstepd_is_requeued(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING", 8: "COMPLETING"}
    await lab.responder.handle_symptom(orphan(7, 990.0), [])
    assert lab.world.requeued == [7]
    lab.clock.now += 1000
    await lab.responder.handle_symptom(orphan(8, lab.clock.now), [])
    assert lab.world.requeued == [7]
    assert len(await lab.store.incidents.search("lab")) == 1
    assert lab.world.state == "IDLE", "the node stays in service"


async def test_contained_errors_requeue_each_job_run_once(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING", 8: "COMPLETING"}
    lab.clock.now = 1000.0
    await lab.responder.handle_symptom(symptom(94, at=990.0, job=7), [])
    await lab.responder.handle_symptom(symptom(94, at=990.5, job=7), [])
    assert lab.world.requeued == [7], "a burst is one error"
    await lab.responder.handle_symptom(symptom(94, at=1001.0, job=8), [])
    assert lab.world.requeued == [7, 8], "its end is held by the epilog"
    lab.clock.now = 1010.0
    lab.world.jobs = {7: "RUNNING"}
    await lab.responder.handle_symptom(symptom(94, at=1005.0, job=7), [])
    assert lab.world.requeued == [7, 8, 7], "it had run again"
    assert len(await lab.store.incidents.search("lab")) == 1


async def test_job_ended_by_its_lease_is_requeued_unless_pending(lab: Ward) -> None:
    lab.world.jobs = {7: "FAILED", 8: "PENDING"}
    for number, job_id in enumerate((7, 8)):
        one = Symptom(
            f"x{job_id}", 990.0 + 500 * number, NODE, 0, None, "ended", job_id, "lease", FaultAction.RESTART_JOB
        )
        await lab.responder.handle_symptom(one, [])
    assert lab.world.requeued == [7]
    assert lab.world.state == "IDLE"


async def test_failing_incident_step_blocks_no_other_incident(lab: Ward) -> None:
    lab.world.jobs, lab.world.leaves = {7: "RUNNING"}, False
    await lab.responder.handle_symptom(symptom(), [])
    first = (await lab.newest()).number
    fences = 0

    async def wedged(_: Machine) -> None:
        nonlocal fences
        fences += 1
        raise CommandFailed(["podman", "kill"], 125, "container is wedged")

    lab.world.fence = wedged  # type: ignore[method-assign]
    messages = await lab.responder.handle_dead_node("lab-1-1", "no heartbeat", at=990.0)
    assert [where for where, _ in messages] == ["lab-1-1", "lab-1-1"]
    assert "container is wedged" in messages[-1][1]
    lab.world.jobs = {}
    messages = []
    for _ in range(3):
        lab.clock.now += 60
        messages += await lab.responder.resume_open()
    assert fences == 4, "it is tried with every look"
    assert [text for where, text in messages if where == "lab-1-1"] == []
    assert (await lab.store.incidents.get(first)).state is not IncidentState.DRAINING


async def test_bug_in_one_incident_step_is_reported_once_and_blocks_no_other(
    lab: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        await lab.store.incidents.open("lab", f"lab-1-{number + 1}", "XID 79", FaultAction.REBOOT, 1.0, {})
    tried: list[int] = []

    async def advance(incident: Incident) -> list[tuple[str, str]]:
        tried.append(incident.number)
        if incident.number == 1:
            raise ValueError("what nobody thought of")
        return [(incident.node, "goes on")]

    monkeypatch.setattr(lab.responder, "run_due_steps", advance)
    said = await lab.responder.resume_open() + await lab.responder.resume_open()
    assert sorted(tried) == [1, 1, 2, 2]
    assert said.count(("lab-1-1", "internal error in this step: ValueError")) == 1
    assert said.count(("lab-1-2", "goes on")) == 2


async def test_unreachable_head_limits_incidents_tried_per_pass(lab: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        await lab.store.incidents.open("lab", f"lab-1-{number + 1}", "XID 79", FaultAction.REBOOT, 1.0, {})
    tried: list[int] = []

    async def advance(incident: Incident) -> None:
        tried.append(incident.number)
        raise Unreachable("lab-head does not answer")

    monkeypatch.setattr(lab.responder, "run_due_steps", advance)
    for _ in range(3):
        await lab.responder.resume_open()
    assert len(tried) == 3 * MAX_FAULTS_PER_PASS
    assert set(tried) == set(range(1, 7))


async def test_health_loop_without_its_database_drains_and_fences_no_node(
    lab: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away at each of the store's calls in turn; after it is back, the fault is handled."""

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the server's database does not answer")

    incidents, symptoms = type(lab.store.incidents), type(lab.store.symptoms)
    for owner, name in ((symptoms, "exists"), (symptoms, "of_node"), (incidents, "search"), (incidents, "open")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, away)
            with pytest.raises(StoreUnavailable):
                await lab.responder.handle_symptom(symptom(79), [])
    assert lab.world.order == []
    with monkeypatch.context() as patch:
        patch.setattr(incidents, "search", away)
        for call in (lab.responder.handle_dead_node(NODE, "no heartbeat"), lab.responder.resume_open()):
            with pytest.raises(StoreUnavailable):
                await call
    assert lab.world.order == []
    await lab.responder.handle_symptom(symptom(79), [])
    assert lab.world.order[0] == "drain"
