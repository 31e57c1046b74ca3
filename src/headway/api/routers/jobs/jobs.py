"""The queue, one job, and what can be done with it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, PathNumber, State
from headway.api.http.compression import accepts_gzip
from headway.api.http.parameters import Task
from headway.schemas.jobs import ArrayOut, JobOut, JobRunsOut, JobsAsk, JobsPage, ScriptOut
from headway.schemas.submissions import LineageOut
from headway.services.jobs import details
from headway.services.jobs.actions import act_on_job
from headway.services.jobs.lineage import get_lineage
from headway.services.read_model.queue_pages import jobs_page_json

router = APIRouter(prefix="/clusters/{name}/jobs", tags=["jobs"])


@router.get("", response_model=JobsPage)
async def jobs(
    name: str,
    state: State,
    who: Anyone,
    ask: Annotated[JobsAsk, Query()],
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """Queued and running jobs, a page at a time; with `all` those that ended lately too."""
    packed = accepts_gzip(accept_encoding)
    body = await jobs_page_json(state, name, who, ask, compressed=packed)
    headers = {"content-encoding": "gzip", "vary": "accept-encoding"} if packed else {"vary": "accept-encoding"}
    return Response(body, media_type="application/json", headers=headers)


@router.get("/{job_id}")
async def job(name: str, job_id: PathNumber, state: State, who: Anyone, task: Task = "") -> JobOut:
    """All about one job, or one task of an array: pending tasks may share one record.

    Why its container did not start comes from its log: only those who may read the log get it."""
    return await details.get_job(state, who, name, job_id, task)


@router.delete("/{job_id}", status_code=204)
async def cancel(name: str, job_id: PathNumber, state: State, who: Member, task: Task = "") -> Response:
    """Ends it. An array by its own number is cancelled whole, as scancel does."""
    await act_on_job(state, who, name, job_id, "cancel", task)
    return Response(status_code=204)


@router.post("/{job_id}/requeue", status_code=204)
async def requeue(name: str, job_id: PathNumber, state: State, who: Member, task: Task = "") -> Response:
    """Sends a running job back to the queue."""
    await act_on_job(state, who, name, job_id, "requeue", task)
    return Response(status_code=204)


@router.post("/{job_id}/hold", status_code=204)
async def hold(name: str, job_id: PathNumber, state: State, who: Member, task: Task = "") -> Response:
    """Keeps a pending job from starting. If a lead or an admin holds another person's job, only they can release it."""
    await act_on_job(state, who, name, job_id, "hold", task)
    return Response(status_code=204)


@router.post("/{job_id}/release", status_code=204)
async def release(name: str, job_id: PathNumber, state: State, who: Member, task: Task = "") -> Response:
    """Lets a held job start again."""
    await act_on_job(state, who, name, job_id, "release", task)
    return Response(status_code=204)


@router.get("/{job_id}/runs")
async def runs(name: str, job_id: PathNumber, state: State, _: Anyone) -> JobRunsOut:
    """Every run of the job, with its placement on the network, and the incidents that affected it."""
    return await details.get_runs(state, name, job_id)


@router.get("/{job_id}/script")
async def script(name: str, job_id: PathNumber, state: State, who: Member) -> ScriptOut:
    """The submitted script, as Headway or else Slurm's accounting stored it. Values of secrets are masked."""
    return await details.get_script(state, who, name, job_id)


@router.get("/{job_id}/tasks")
async def tasks(name: str, job_id: PathNumber, state: State, who: Member) -> ArrayOut:
    """The states of an array's tasks; total 0 for a job that is no array."""
    return await details.get_array_tasks(state, who, name, job_id)


@router.get("/{job_id}/lineage")
async def show_lineage(name: str, job_id: PathNumber, state: State, who: Member) -> LineageOut:
    """Where a job comes from: what was submitted, by whom, from which commit, and what Slurm gave it."""
    return await get_lineage(state, who, name, job_id)
