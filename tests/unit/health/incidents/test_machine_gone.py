"""Incidents of machines that were deleted, lost or removed from the cluster file are closed and their slots become
free."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.providers import LOCAL
from headway.domain.incident import FaultAction, Incident, IncidentState
from headway.health.incidents.return_to_service import repeat_return
from tests.support.clusters import builders
from tests.support.clusters.builders import machine
from tests.support.clusters.incident_cluster import LAB, NODE, Ward, symptom, ward

GROUP = LAB.groups[0]  # five slots
ROOMY = replace(LAB, groups=(replace(GROUP, nodes=4, spares=0, most=5),))  # one slot is free
SPOT = replace(ROOMY, groups=(replace(ROOMY.groups[0], spot=True),))
IDLE = replace(LAB, groups=(replace(GROUP, nodes=0, spares=0, most=5, idle_s=600),))
GONE = "its machine is gone and is not to be replaced"


async def out_of_service(made: Ward) -> Incident:
    """The node's incident, after repairs that did not help."""
    made.world.gpus, made.world.gpus_after_reset = 7, 7
    await made.responder.handle_symptom(symptom(46), [])
    found = await made.settle()
    assert (found.state, made.world.reason[:18]) == (IncidentState.OUT, "headway: incident ")
    return found


async def lost(made: Ward) -> None:
    """Its machine goes without a word."""
    made.world.machine = None
    await made.responder.handle_dead_node(NODE, "its machine is gone", at=made.clock.now, fence="its machine is gone")


async def test_lost_machine_of_autoscaled_group_frees_slot_for_slurm(
    tmp_path: Path,
) -> None:
    async with ward(tmp_path, IDLE) as made:
        made.world.traits = LOCAL
        await made.store.clusters.save("lab", {"spec": "name: lab"}, summary={}, owner="ann")
        made.world.jobs = {7: "RUNNING"}
        await lost(made)
        found = await made.settle()
        assert (found.state, found.steps[-1].text) == (IncidentState.RETURNED, GONE)
        assert [moved.job for moved in found.jobs] == [7]
        assert made.world.order == ["down", "resume", "sleeps"]
        assert (await made.store.operations.recent("lab")) == (), "an apply would make none"


async def test_spot_machine_lost_without_notice_frees_its_slot(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        await lost(made)
        found = await made.settle()
        assert (found.state, found.steps[-1].text) == (IncidentState.RETURNED, GONE)
        assert made.world.reason == "headway: no machine"


async def test_scale_down_closes_incident_of_removed_machine(tmp_path: Path) -> None:
    async with ward(tmp_path, ROOMY) as made:
        await out_of_service(made)
        made.world.machine, made.world.state, made.world.reason = None, "DOWN", "headway: no machine"
        said = len(made.world.order)
        await made.responder.resume_open()
        found = await made.newest()
        assert (found.state, found.drained, found.steps[-1].text) == (IncidentState.RETURNED, False, GONE)
        assert made.world.order[said:] == [], "Slurm knows it already"

        made.world.machine = replace(machine(NODE), started_at=made.clock.now)
        made.world.state, made.world.reason = "IDLE", ""
        await lost(made)
        assert (await made.newest()).number == found.number + 1, "its next machine is nobody's old fault"


async def test_new_machine_in_service_closes_old_incident(tmp_path: Path) -> None:
    async with ward(tmp_path, ROOMY) as made:
        await out_of_service(made)
        made.clock.now += 60
        made.world.machine = replace(machine(NODE), started_at=made.clock.now)
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.OUT, "it is still drained"
        made.world.state, made.world.reason = "IDLE", "none"
        await made.responder.resume_open()
        found = await made.newest()
        assert found.state is IncidentState.RETURNED
        assert found.steps[-1].text == "its machine was recreated or restarted and is in service"


async def test_same_machine_resumed_by_hand_keeps_incident_open(tmp_path: Path) -> None:
    async with ward(tmp_path, ROOMY) as made:
        await out_of_service(made)
        made.clock.now += 60
        made.world.state, made.world.reason = "IDLE", "none"
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.OUT


async def test_replacement_in_another_slot_closes_incident(tmp_path: Path) -> None:
    async with ward(tmp_path, ROOMY) as made:
        made.world.traits, made.world.missing = LOCAL, {"lab-1-1"}
        made.world.gpus, made.world.gpus_after_reset = 7, None
        await made.store.clusters.save("lab", {"spec": "name: lab"}, summary={}, owner="ann")
        await made.responder.handle_symptom(symptom(79), [])
        while "delete" not in made.world.order:
            await made.responder.sleep(0)
            await made.responder.resume_open()
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.REPAIRING, "the group is one short"
        assert made.responder.tasks.running
        made.world.missing.clear()
        await made.responder.resume_open()
        found = await made.newest()
        assert (found.state, found.steps[-1].text) == (IncidentState.RETURNED, GONE)
        assert not made.responder.tasks.running
        assert made.world.reason == "headway: no machine"
        assert found.score == 0


async def test_missing_machine_keeps_incident_until_successor_passes_tests(tmp_path: Path) -> None:
    async with ward(tmp_path) as made:
        await out_of_service(made)
        made.world.machine = None
        await made.responder.resume_open()
        await made.responder.resume_open()
        found = await made.newest()
        assert found.state is IncidentState.OUT
        assert [step.text for step in found.steps].count(
            "its machine is gone: run headway apply to create another"
        ) == 1
        assert made.world.reason.startswith("headway: incident ")
        made.clock.now += 600
        made.world.machine, made.world.gpus = replace(machine(NODE), started_at=made.clock.now), 8
        found = await made.settle()
        assert (found.state, found.steps[-1].text) == (IncidentState.RETURNED, "tests passed; back in service")
        assert found.score == 0, "it is another machine"
        assert made.world.order[-1] == "resume"


async def test_lost_spot_machine_frees_slot_while_incident_stays_open(tmp_path: Path) -> None:
    """Of a spot group that is short, with no other slot left: the waker takes those that Slurm has as empty."""
    full = replace(LAB, groups=(replace(GROUP, spot=True),))
    async with ward(tmp_path, full) as made:
        await out_of_service(made)
        made.world.machine = None
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.OUT
        assert made.world.reason == "headway: no machine"
        made.world.machine = replace(machine(NODE), started_at=made.clock.now + 5)
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.OUT, "it is being set up"
        made.world.state, made.world.reason = "IDLE", "none"
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.RETURNED


@pytest.mark.parametrize("action", [FaultAction.REBOOT, FaultAction.RECLAIM, FaultAction.MAKE])
async def test_incident_closes_when_slot_leaves_cluster_file(tmp_path: Path, action: FaultAction) -> None:
    async with ward(tmp_path) as made:
        opened = await made.store.incidents.open("lab", "lab-7-7", "what", action, made.clock.now, {})
        await made.store.incidents.add_step(opened, IncidentState.REPAIRING, "begins", drained=True)
        await made.responder.resume_open()
        found = await made.newest()
        assert (found.state, found.steps[-1].text) == (
            IncidentState.RETURNED,
            "its slot is no longer part of the cluster file",
        )


@pytest.mark.parametrize("state", [IncidentState.SEEN, IncidentState.REPAIRING, IncidentState.TESTING])
async def test_removed_node_keeps_incident_until_its_jobs_end(tmp_path: Path, state: IncidentState) -> None:
    """The new file is in the row, the old machine is there."""
    fewer = replace(LAB, groups=(replace(GROUP, slots=("lab-1-1",), most=1, nodes=1, spares=0),))
    async with ward(tmp_path, fewer) as made:
        made.world.state, made.world.reason, made.world.jobs = "IDLE+DRAIN", "headway: leaves", {7: "RUNNING"}
        opened = await made.store.incidents.open("lab", NODE, "what", FaultAction.DRAIN, made.clock.now, {})
        evidence = {"tests": True, "try": "reboot"}
        await made.store.incidents.add_step(opened, state, "begins", drained=True, evidence=evidence)
        await made.settle()
        found = await made.newest()
        jobs_first = IncidentState.JOBS_MOVED if state is IncidentState.SEEN else state
        assert found.state is jobs_first
        assert (made.world.jobs[7] == "PENDING") is (state is IncidentState.SEEN)
        made.world.machine = None
        await made.responder.resume_open()
        assert (await made.newest()).steps[-1].text == "its slot is no longer part of the cluster file"


async def test_observe_only_incident_closes_when_machine_is_gone(tmp_path: Path) -> None:
    async with ward(tmp_path, replace(ROOMY, health=builders.health(act=False))) as made:
        await made.responder.handle_symptom(symptom(79), [])
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.SEEN
        made.world.machine, made.world.state, made.world.reason = None, "DOWN", "headway: no machine"
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.RETURNED
        assert made.world.order == []


async def test_drain_set_by_another_person_is_kept(tmp_path: Path) -> None:
    async with ward(tmp_path, ROOMY) as made:
        made.world.state, made.world.reason = "IDLE+DRAIN", "carol: looks at it"
        await made.responder.handle_symptom(symptom(79), [])
        await made.settle()
        made.world.machine = None
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.RETURNED
        assert made.world.reason == "carol: looks at it"


async def test_jobs_are_requeued_before_node_powers_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm hears that the node is down before anything ends."""
    async with ward(tmp_path, IDLE) as made:
        made.world.machine, made.world.jobs = None, {7: "RUNNING"}
        real: Callable[..., Awaitable[Any]] = made.responder.cluster_context.connections.remote

        async def watched(at: Any, argv: Any, **more: Any) -> Any:
            if "State=POWER_DOWN_FORCE" in argv:
                assert made.world.jobs == {7: "PENDING"}
            return await real(at, argv, **more)

        monkeypatch.setattr(made.world, "remote", watched)
        await lost(made)
        await made.settle()
        assert made.world.order[-1] == "sleeps"


async def test_leaving_node_stays_drained_after_passing_tests(tmp_path: Path) -> None:
    async with ward(tmp_path, ROOMY) as made:
        made.world.state, made.world.reason = "IDLE+DRAIN", "headway: leaves"
        made.world.gpus, made.world.gpus_after_reset = 7, 8
        await made.responder.handle_symptom(symptom(46), [])
        number = (await made.newest()).number
        assert made.world.reason.startswith(f"headway: leaves: headway: incident {number}: ")
        found = await made.settle()
        assert (found.state, found.steps[-1].text) == (
            IncidentState.RETURNED,
            "tests passed; it stays drained: it is being scaled in",
        )
        assert "resume" not in made.world.order
        made.world.reason = made.world.reason.removeprefix("headway: leaves: ")  # it stays after all
        assert await repeat_return(made.responder.context, NODE)
        assert made.world.state == "IDLE"


@pytest.mark.parametrize("reason", ["headway: leaves", "headway: rolls"])
async def test_dead_leaving_node_is_acted_on_only_while_it_has_jobs(tmp_path: Path, reason: str) -> None:
    async with ward(tmp_path, ROOMY) as made:
        made.world.state, made.world.reason = "IDLE+DRAIN", reason
        await lost(made)
        assert made.world.order == [], "nothing runs there: whoever takes it out of service finds it gone"
        made.world.jobs = {7: "RUNNING"}
        await lost(made)
        assert "down" in made.world.order
        assert made.world.jobs[7] == "PENDING"


async def test_failed_successor_machine_is_not_tested_repeatedly(tmp_path: Path) -> None:
    async with ward(tmp_path) as made:
        await out_of_service(made)
        made.world.machine = None
        await made.responder.resume_open()
        made.clock.now += 600
        made.world.machine = replace(machine(NODE), started_at=made.clock.now)
        found = await made.settle()
        assert (found.state, found.found("gone")) == (IncidentState.OUT, False)
        count = len(found.steps)
        await made.responder.resume_open()
        assert len((await made.newest()).steps) == count, "it stays so"


async def test_drain_reason_set_by_person_on_leaving_node_is_kept(tmp_path: Path) -> None:
    async with ward(tmp_path, ROOMY) as made:
        made.world.state, made.world.reason = "IDLE+DRAIN", "headway: leaves: carol: looks at it"
        await made.responder.handle_symptom(symptom(79), [])
        assert (await made.settle()).drained is False
        assert made.world.reason == "headway: leaves: carol: looks at it"
