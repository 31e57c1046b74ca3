"""A disk filled by jobs is waited for without a repair; a disk that stays full after its jobs is repaired."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.incident import FaultAction, IncidentState
from tests.support.clusters.incident_cluster import FOR_GOOD, Ward, symptom

SAYS = "100 MiB free in /, held by job 7"
FULL = replace(symptom(0, gpu=None), kind="disk", text=f"disk: {SAYS}", action=FaultAction.MOUNT)


async def test_disk_filled_by_a_job_costs_no_other_job_and_no_repair(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING", 8: "RUNNING"}
    lab.world.unfit = [SAYS, SAYS, "", SAYS]
    await lab.responder.handle_symptom(FULL, [])
    assert lab.world.reason == f"headway: incident 1: disk: {SAYS}"
    found = await lab.settle()
    assert found.state is IncidentState.RETURNED
    assert lab.world.order == ["drain", *["look for room"] * 9, "resume"], "room has to stay"
    assert (lab.world.requeued, found.score) == ([], 0)
    assert "files of running jobs fill its disk until the jobs end" in [step.text for step in found.steps]


async def test_disk_that_stays_full_after_its_jobs_is_repaired(lab: Ward) -> None:
    lab.world.jobs, lab.world.away = {7: "RUNNING"}, FOR_GOOD
    lab.world.unfit = [SAYS] * 10**6
    await lab.responder.handle_symptom(FULL, [])
    await lab.responder.resume_open()
    assert ((await lab.newest()).state, lab.world.requeued) == (IncidentState.REPAIRING, [])
    lab.world.unfit = []
    drains = replace(FULL, id="later", text="disk: 100 MiB free in /", action=FaultAction.DRAIN)
    await lab.responder.handle_symptom(drains, [])
    assert lab.world.requeued == [7]
    found = await lab.settle()
    assert (found.state, found.action) == (IncidentState.RETURNED, FaultAction.DRAIN)


async def test_job_filling_the_disk_during_tests_does_not_keep_the_node_out(lab: Ward) -> None:
    lab.world.unfit = [SAYS]
    await lab.responder.handle_symptom(FULL, [])
    while (await lab.newest()).state is not IncidentState.TESTING:
        await lab.responder.resume_open()
        for task in lab.responder.tasks.running.values():
            await task
    again = replace(FULL, id="again", at=FULL.at + 100)
    await lab.responder.handle_symptom(again, [])
    found = await lab.settle()
    assert found.state is IncidentState.RETURNED
