"""The job page shows timeline, array states and progress correctly and caches its requests to the cluster."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace

import pytest

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Unreachable
from headway.schemas.jobs import JobRunsOut, ProgressOut
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.read_model.readings import PROGRESS_AGE_S, SHARED_AGE_S
from headway.services.read_model.snapshot import Snapshot
from headway.web.views.job_timeline import timeline
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server


@pytest.fixture
async def server(server: Server) -> Server:
    """With a cluster."""
    await server.apply()
    return server


def _tasks(*states: str) -> tuple[JobState, ...]:
    made = [builders.job(40 + i, state, start_time=900) for i, state in enumerate(states)]
    return tuple(replace(job, array_job_id=40, array_task=str(i)) for i, job in enumerate(made))


async def test_array_states_are_cached_until_a_task_changes(server: Server) -> None:
    state, cluster = server.state, await server.state.clusters.cached("lab")
    server.backend.answers["array_states"] = {"0": "RUNNING", "1": "PENDING"}
    state.live.store_snapshot(Snapshot("lab", jobs=_tasks("RUNNING", "PENDING"), as_of=1000.0))
    answers = await asyncio.gather(*(state.readings.array_states(cluster, 40) for _ in range(3)))
    assert answers == [{"0": "RUNNING", "1": "PENDING"}] * 3
    assert len(server.backend.named("array_states")) == 1
    state.clock.now += 10 * SHARED_AGE_S  # type: ignore[attr-defined]
    await state.readings.array_states(cluster, 40)
    assert len(server.backend.named("array_states")) == 1, "no task did anything"
    server.backend.answers["array_states"] = {"0": "COMPLETED", "1": "RUNNING"}
    state.live.store_snapshot(Snapshot("lab", jobs=_tasks("COMPLETED", "RUNNING"), as_of=1000.0))
    assert await state.readings.array_states(cluster, 40) == {"0": "COMPLETED", "1": "RUNNING"}
    state.live.store_snapshot(Snapshot("lab", jobs=_tasks("COMPLETED", "FAILED"), as_of=1000.0))
    assert await state.readings.array_states(cluster, 40) == {"0": "COMPLETED", "1": "RUNNING"}, "not at every step"
    assert len(server.backend.named("array_states")) == 2
    server.backend.answers["array_states"] = {"0": "COMPLETED", "1": "FAILED"}
    state.clock.now += SHARED_AGE_S  # type: ignore[attr-defined]
    assert await state.readings.array_states(cluster, 40) == {"0": "COMPLETED", "1": "FAILED"}


async def test_array_states_are_right_after_slurm_has_forgotten_the_array(server: Server) -> None:
    """The page was opened before Slurm was read after the submission, and again much later."""
    state, cluster = server.state, await server.state.clusters.cached("lab")
    state.live.store_snapshot(Snapshot("lab", as_of=1000.0))
    server.backend.answers["array_states"] = {"0": "PENDING"}
    assert await state.readings.array_states(cluster, 40) == {"0": "PENDING"}
    server.backend.answers["array_states"] = {"0": "COMPLETED"}
    state.clock.now += SHARED_AGE_S  # type: ignore[attr-defined]
    assert await state.readings.array_states(cluster, 40) == {"0": "COMPLETED"}


async def test_timeline_shows_start_and_end_of_a_requeued_run(server: Server) -> None:
    """Accounting calls it REQUEUED, which the controller says of a job that waits."""
    node = builders.cluster().slot_names[0]
    first = builders.job(7, "REQUEUED", gpus=8, nodes=(node,), submit_time=900, start_time=910, end_time=950)
    again = builders.job(7, "PENDING", gpus=8, nodes=(), submit_time=960, start_time=0, end_time=0)
    waits = replace(again, start_time=5000)  # when Slurm expects it to
    server.state.live.store_snapshot(Snapshot("lab", jobs=(waits,), as_of=1000.0))
    server.backend.answers["job_runs"] = (first, again)
    server.backend.answers["history"] = ()
    got = await (await server.client()).get("/api/v1/clusters/lab/jobs/7/runs")
    told = JobRunsOut.model_validate(got.json())
    course = [(run.start_time, run.end_time, bool(run.placement)) for run in told.runs]
    assert course == [(910, 950, True), (0, 0, False)]
    steps = [step.title for step in timeline("lab", waits, told).steps]
    assert steps == ["Submitted", "Started", "Went back to the queue", "Pending again"]


async def test_progress_of_an_ended_job_is_read_once_and_cached(
    server: Server,
) -> None:
    job = builders.job(7, "COMPLETED", nodes=("lab-1-1",), start_time=910, end_time=950)
    server.state.live.store_snapshot(Snapshot("lab", as_of=1000.0))
    server.backend.answers |= {"job": job, "job_runs": (), "history": (), "run_command": ExecOut(code=1)}
    server.backend.answers["progress_from_files"] = ProgressOut(step=120, loss=1.5, series=[(60, 2.0), (120, 1.5)])
    client = await server.client()
    page = await client.get("/clusters/lab/jobs/7")
    assert "[2.0, 1.5]" in page.text.replace("&#34;", '"')
    told = (await client.get("/api/v1/clusters/lab/jobs/7")).json()
    assert (told["progress"]["step"], len(server.backend.named("progress_from_files"))) == (120, 1)
    server.backend.answers["progress_from_files"] = Unreachable("lab-head does not answer")
    server.state.clock.now += 10 * PROGRESS_AGE_S  # type: ignore[attr-defined]
    server.state.live.store_snapshot(Snapshot("lab", as_of=server.state.clock()))
    assert (await client.get("/clusters/lab/jobs/7")).status_code == 200


async def test_owner_and_admins_can_go_back_to_a_checkpoint(server: Server) -> None:
    """As in the API. Others do not see the button."""
    numbers = iter((41, 42))
    server.backend.answers["submit"] = lambda *_: SubmitOut(
        job_id=next(numbers), cluster="lab", user="eve", workdir="/x"
    )
    eve = await server.client("eve", "member")
    sent = await eve.post("/api/v1/clusters/lab/run", json={"argv": ["python3", "train.py"]})
    assert sent.status_code == 201, sent.text
    listed = base64.b64encode(json.dumps({"checkpoints": ["step-00003000"], "used": []}).encode()).decode()
    job = builders.job(41, user="eve")
    server.state.live.store_snapshot(Snapshot("lab", jobs=(job,), as_of=1000.0))
    server.backend.answers |= {"job": job, "job_runs": (), "history": (), "array_states": {}}
    server.backend.answers |= {"run_command": ExecOut(code=0, stdout_b64=listed), "progress_from_files": None}
    admin = await server.client("ann", "admin")
    shown = {
        person: "New job from here" in (await client.get("/clusters/lab/jobs/41")).text
        for person, client in (("eve", eve), ("bob", await server.client("bob", "member")), ("ann", admin))
    }
    assert shown == {"eve": True, "bob": False, "ann": True}
    sent = await admin.post("/clusters/lab/jobs/41/resume", data={"step": "3000", "form_key": "0" * 32})
    assert (sent.status_code, sent.headers["location"]) == (303, "/clusters/lab/jobs/42")
    assert server.backend.named("submit")[-1][2] == "eve"
