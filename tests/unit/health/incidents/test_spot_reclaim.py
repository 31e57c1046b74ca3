"""When a provider reclaims a spot machine, its jobs are warned or requeued, the machine is deleted and a replacement
closes the incident."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.domain.incident import FaultAction, IncidentState
from headway.errors import Conflict
from tests.support.clusters import builders
from tests.support.clusters.incident_cluster import LAB, NODE, Ward, symptom, ward

SPOT = replace(LAB, groups=(replace(LAB.groups[0], spot=True),))
ALONE = replace(LAB, groups=(replace(LAB.groups[0], spot=True, nodes=0, spares=0, idle_s=600),))
ASKED = "#!/bin/sh\n#SBATCH --signal=B:USR1@60\n"


async def noticed(made: Ward, in_s: float = 120.0) -> None:
    made.world.due[NODE] = made.clock.now + in_s
    await made.responder.handle_reclaim_notices()


async def test_reclaim_requeues_jobs_deletes_machine_and_waits_for_successor(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        made.world.jobs = {7: "RUNNING"}
        await noticed(made)
        incident = await made.newest()
        assert (incident.action, incident.state) == (FaultAction.RECLAIM, IncidentState.REPAIRING)
        assert made.world.requeued == [7]
        assert made.world.order == ["drain", "delete", "down", "down"]
        assert made.world.reason == "headway: no machine"
        assert incident.steps[0].text == "the provider takes its machine back in 120 s"
        assert incident.steps[-1].text == "returned to the provider 120 s before the deadline"

        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.REPAIRING  # the group is one short
        made.world.machine = replace(builders.machine(NODE), started_at=made.clock.now + 30)
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.REPAIRING  # it is there, and does not serve yet
        made.world.state, made.world.reason = "IDLE", "none"
        await made.responder.resume_open()
        over = await made.newest()
        assert over.state is IncidentState.RETURNED
        assert over.steps[-1].text == f"{NODE} replaced it"
        assert over.score == 0


async def test_job_with_signal_option_is_warned_before_requeue(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        made.world.jobs, made.world.scripts = {7: "RUNNING", 8: "RUNNING"}, {7: ASKED}
        await noticed(made)
        assert made.world.order == ["drain", "signal 7 --signal=USR1"]
        assert made.world.requeued == [8]
        made.clock.now += 59
        await made.responder.resume_open()
        assert made.world.requeued == [8]
        made.clock.now += 2
        await made.responder.resume_open()
        assert made.world.requeued == [8, 7]
        assert "delete" in made.world.order


async def test_short_notice_shortens_job_warning_time(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        made.world.jobs, made.world.scripts = {7: "RUNNING"}, {7: ASKED}
        await noticed(made, 30.0)
        made.clock.now += 16
        await made.responder.resume_open()
        assert made.world.requeued == [7]


async def test_jobs_are_requeued_at_once_without_time_for_warning(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        made.world.jobs, made.world.scripts = {7: "RUNNING"}, {7: ASKED}
        await noticed(made, 10.0)
        assert made.world.requeued == [7]


async def test_non_requeueable_job_runs_until_reclaim_deadline(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        made.world.jobs, made.world.fixed = {7: "RUNNING"}, {7}
        await noticed(made)
        made.clock.now += 100
        await made.responder.resume_open()
        assert made.world.order == ["drain"]
        made.clock.now += 16
        await made.responder.resume_open()
        incident = await made.newest()
        assert made.world.jobs[7] == "NODE_FAIL"
        assert any(step.text == "its time has ended; ended: 7" for step in incident.steps)
        assert "delete" in made.world.order


async def test_reclaim_in_autoscaled_group_frees_slot(tmp_path: Path) -> None:
    async with ward(tmp_path, ALONE) as made:
        await noticed(made)
        assert made.world.order == ["drain", "delete", "sleeps"]
        incident = await made.newest()
        assert incident.state is IncidentState.RETURNED
        assert incident.steps[-1].text == "no replacement is needed now"


async def test_repeated_reclaim_notice_opens_one_incident(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        made.world.jobs, made.world.fixed = {7: "RUNNING"}, {7}
        await noticed(made)
        await made.responder.handle_reclaim_notices()
        await (await made.another_server()).handle_reclaim_notices()
        assert len(await made.store.incidents.search("lab")) == 1


async def test_notice_of_the_replacement_opens_an_incident_of_its_own(tmp_path: Path) -> None:
    """The replacement has the name of the machine before it, and here also the second at which it is reclaimed."""
    async with ward(tmp_path, SPOT) as made:
        await noticed(made)
        made.world.machine = replace(builders.machine(NODE), started_at=made.clock.now + 5)
        made.world.state, made.world.reason = "IDLE", "none"
        due = made.clock.now + 120
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.RETURNED
        made.clock.now += 15
        made.world.due[NODE] = due
        await made.responder.handle_reclaim_notices()
        states = [incident.state for incident in await made.store.incidents.search("lab")]
        assert states == [IncidentState.REPAIRING, IncidentState.RETURNED]


async def test_reclaim_takes_over_existing_incident_of_node(tmp_path: Path) -> None:
    """A node out of service, or under repair, is given back as well, and its next machine is no longer ill."""
    async with ward(tmp_path, SPOT) as made:
        await made.responder.handle_symptom(symptom(95), [])
        incident = await made.store.incidents.add_step(await made.newest(), IncidentState.OUT, "did not help")
        assert incident.drained
        await noticed(made)
        found = await made.store.incidents.search("lab")
        assert [(one.number, one.action, one.state) for one in found] == [
            (incident.number, FaultAction.RECLAIM, IncidentState.REPAIRING)
        ]
        assert "delete" in made.world.order


async def test_reclaim_keeps_drain_reason_set_by_person(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        made.world.state, made.world.reason = "IDLE+DRAIN", "carol: looks at it"
        await noticed(made)
        assert made.world.order == ["delete"]
        assert made.world.reason == "carol: looks at it"


async def test_reclaim_does_not_delete_newer_machine(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        made.world.jobs, made.world.fixed = {7: "RUNNING"}, {7}
        await noticed(made)
        made.world.jobs.clear()
        made.world.due.clear()  # a notice is of a machine
        made.world.machine = replace(builders.machine(NODE), started_at=made.clock.now + 5)
        await made.responder.resume_open()
        assert made.world.order == ["drain", "resume"]
        assert (await made.newest()).state is IncidentState.RETURNED


async def test_reclaimed_machine_cannot_be_returned_by_hand(tmp_path: Path) -> None:
    async with ward(tmp_path, SPOT) as made:
        await noticed(made)
        with pytest.raises(Conflict, match="no machine to test"):
            await made.responder.return_node((await made.newest()).number, "carol", false_alarm=False)


async def test_observe_only_mode_records_reclaim_without_acting(tmp_path: Path) -> None:
    quiet = replace(SPOT, health=replace(SPOT.health, act=False))
    async with ward(tmp_path, quiet) as made:
        made.world.jobs = {7: "RUNNING"}
        await noticed(made)
        incident = await made.newest()
        assert incident.state is IncidentState.SEEN
        assert made.world.order == []
        assert (await made.bring_back(incident.number, "carol")).state is IncidentState.RETURNED
