"""Failed requeues are retried; completed, cancelled, forgotten and already requeued jobs are not requeued."""

from __future__ import annotations

import pytest

from headway.domain.incident import IncidentState
from headway.health.detection.agent_events import Heartbeats
from tests.support.clusters.incident_cluster import NODE, Ward, symptom

SILENT = Heartbeats(4, {NODE: 6.0})


async def test_failed_requeue_is_retried_at_the_next_pass(lab: Ward) -> None:
    lab.world.jobs, lab.world.stuck, lab.world.fixed = {7: "RUNNING", 8: "RUNNING", 9: "RUNNING"}, {7}, {9}
    messages = await lab.responder.handle_symptom(symptom(), [])
    assert "Unable to contact slurm controller" in messages[-1][1]
    found = await lab.newest()
    assert (found.state, found.steps[-1].text) == (IncidentState.DRAINING, "jobs requeued: 8; not to be requeued: 9")
    assert await lab.responder.resume_open() == [], "it is said once"
    assert len((await lab.newest()).steps) == len(found.steps), "and noted once"
    lab.world.stuck = set()
    await lab.responder.resume_open()
    assert lab.world.requeued == [8, 7]


async def test_failed_requeue_is_retried_for_a_job_that_left_the_node(lab: Ward) -> None:
    lab.world.jobs, lab.world.stuck = {7: "FAILED"}, {7}
    await lab.responder.handle_symptom(symptom(job=7), [])
    assert (await lab.newest()).state is IncidentState.DRAINING
    lab.world.stuck = set()
    await lab.responder.resume_open()
    assert lab.world.requeued == [7]


async def test_failed_requeue_is_retried_for_jobs_of_a_dead_node(lab: Ward) -> None:
    lab.world.jobs, lab.world.last_breath, lab.world.stuck = (
        {7: "RUNNING", 8: "RUNNING"},
        {7: "FAILED", 8: "FAILED"},
        {8},
    )
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    assert (await lab.newest()).state is IncidentState.DRAINING
    lab.world.stuck = set()
    await lab.responder.resume_open()
    assert lab.world.requeued == [7, 8]
    assert [moved.job for moved in (await lab.newest()).jobs] == [7, 8]
    assert "ended" not in (await lab.newest()).steps[-1].text


async def test_job_that_only_loses_a_dead_node_continues_unless_its_batch_script_was_there(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING", 8: "RUNNING", 9: "RUNNING"}
    lab.world.no_kill, lab.world.batch_hosts = {7, 8}, {8: "lab-1-1"}
    await lab.responder.handle_heartbeats(SILENT, 1000.0)
    incident = await lab.newest()
    assert lab.world.requeued == [7]
    assert [moved.job for moved in incident.jobs] == [7, 9]
    assert "jobs requeued: 7, 9; on their other nodes: 8" in [step.text for step in incident.steps]


@pytest.mark.parametrize("again", [False, True])
async def test_failed_requeue_is_retried_on_a_node_that_stays_in_service(lab: Ward, again: bool) -> None:
    """Also a second one, whose error finds the incident over."""
    if again:
        lab.world.jobs = {6: "RUNNING"}
        await lab.responder.handle_symptom(symptom(94, job=6), [])
        assert lab.world.requeued.pop() == 6
    lab.world.jobs, lab.world.stuck = {7: "COMPLETING"}, {7}
    await lab.responder.handle_symptom(symptom(94, at=995.0, job=7), [])
    assert (await lab.newest()).state is IncidentState.SEEN
    lab.world.stuck = set()
    await lab.responder.resume_open()
    assert lab.world.requeued == [7]
    assert (await lab.newest()).state is IncidentState.RETURNED
    assert lab.world.state == "IDLE"


@pytest.mark.parametrize("word", ["COMPLETING", "RUNNING", "PENDING", "FAILED", "COMPLETED"])
async def test_warned_job_that_was_already_requeued_is_left_alone(lab: Ward, word: str) -> None:
    """Its own handler, say, or the incident of another of its nodes: its next run is elsewhere, and healthy."""
    lab.world.jobs, lab.world.scripts = {8: "RUNNING"}, {8: "#SBATCH --signal USR1@600\n"}
    await lab.responder.handle_symptom(symptom(48), [])
    lab.world.jobs, lab.world.refused = {8: word}, {8: "Job is pending execution for job 8"}
    if word != "COMPLETING":
        lab.world.elsewhere, lab.world.refused = {8}, {}
    assert "does not" not in str(await lab.responder.resume_open())
    lab.world.jobs = {8: "RUNNING"}
    lab.world.elsewhere, lab.world.refused = {8}, {}
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.requeued == []


@pytest.mark.parametrize("code", [79, 94])
@pytest.mark.parametrize("word", ["CANCELLED by 1000", "TIMEOUT"])
async def test_cancelled_or_timed_out_job_is_not_requeued(lab: Ward, word: str, code: int) -> None:
    lab.world.jobs, lab.world.accounted = {7: "COMPLETING", 8: "COMPLETING"}, {7: word, 8: "FAILED"}
    await lab.responder.handle_symptom(symptom(code, job=7), [])
    lab.world.jobs |= {7: "CANCELLED"}
    await lab.settle()
    assert lab.world.requeued == ([8] if code == 79 else [])


async def test_completed_job_in_its_epilog_is_not_requeued(lab: Ward) -> None:
    """Of the job that the error was of nobody knows: its script may have made little of its tasks' end."""
    lab.world.jobs = {6: "COMPLETING", 7: "COMPLETING", 8: "COMPLETING", 9: "COMPLETING", 10: "RUNNING"}
    lab.world.accounted = {6: "COMPLETED", 7: "COMPLETED", 8: "FAILED"}
    await lab.responder.handle_symptom(symptom(79, job=7), [])
    assert lab.world.requeued == [7, 8, 9, 10]
    assert lab.world.order == ["drain"], "it still holds the node"
    del lab.world.jobs[6]
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.requeued == [7, 8, 9, 10]


async def test_completing_jobs_are_not_warned(lab: Ward) -> None:
    """Held by that in its epilog, it would be requeued however it ended."""
    lab.world.jobs, lab.world.accounted = {8: "COMPLETING", 9: "COMPLETING"}, {8: "COMPLETED", 9: "FAILED"}
    lab.world.scripts = dict.fromkeys((8, 9), "#SBATCH --signal USR1@600\n")
    await lab.responder.handle_symptom(symptom(48), [])
    assert lab.world.requeued == [9]
    assert not [line for line in lab.world.order if line.startswith("signal")]


@pytest.mark.parametrize("code", [79, 94])
async def test_requeue_of_a_job_unknown_to_slurm_is_not_retried(lab: Ward, code: int) -> None:
    lab.world.jobs, lab.world.refused = {7: "FAILED"}, {7: "Invalid job id specified for job 7"}
    await lab.responder.handle_symptom(symptom(code, job=7), [])
    assert (await lab.settle()).state is IncidentState.RETURNED
