"""The queue, single jobs, and the actions on a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.array_task import ArrayTask
from headway.api.http.compression import accepts_gzip
from headway.api.http.path_numbers import PathNumber
from headway.schemas.base import API_PREFIX
from headway.schemas.job_list import JobsPage, JobsQuery
from headway.schemas.jobs import ArrayOut, JobOut, JobRunsOut, JobStacksOut, ScriptOut
from headway.schemas.lineage.lineage import LineageOut
from headway.schemas.submission.job_actions import JobsActionIn, JobsActionOut
from headway.schemas.submission.start_alternatives import StartAlternativesOut
from headway.services.jobs import details
from headway.services.jobs.actions import act_on_job, act_on_jobs
from headway.services.jobs.lineage import get_lineage
from headway.services.jobs.rank_stacks import read_rank_stacks
from headway.services.queue.page_json import jobs_page_json
from headway.services.queue.start_alternatives import load_start_alternatives

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/jobs", tags=["jobs"])


@router.get("", response_model=JobsPage)
async def list_jobs(
    name: str,
    state: State,
    who: Anyone,
    query: Annotated[JobsQuery, Query()],
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """Returns a page of the queued and running jobs; with `all` also of those that ended recently."""
    packed = accepts_gzip(accept_encoding)
    body = await jobs_page_json(state, name, who, query, compressed=packed)
    headers = {"content-encoding": "gzip", "vary": "accept-encoding"} if packed else {"vary": "accept-encoding"}
    return Response(body, media_type="application/json", headers=headers)


@router.get("/{job_id}")
async def get_job(name: str, job_id: PathNumber, state: State, who: Anyone, task: ArrayTask = "") -> JobOut:
    """Returns one job, or one task of an array (pending tasks may share one record). The reason why its container did
    not start comes from its log, so only people who may read the log get it."""
    return await details.get_job(state, who, name, job_id, task)


@router.delete("/{job_id}", status_code=204, name="cancel")
async def cancel_job(name: str, job_id: PathNumber, state: State, who: Member, task: ArrayTask = "") -> Response:
    """Cancels the job. The number of an array cancels all its tasks, as scancel does."""
    await act_on_job(state, who, name, job_id, "cancel", task)
    return Response(status_code=204)


@router.post("/{job_id}/requeue", status_code=204, name="requeue")
async def requeue_job(name: str, job_id: PathNumber, state: State, who: Member, task: ArrayTask = "") -> Response:
    """Requeues a running job."""
    await act_on_job(state, who, name, job_id, "requeue", task)
    return Response(status_code=204)


@router.post("/{job_id}/hold", status_code=204, name="hold")
async def hold_job(name: str, job_id: PathNumber, state: State, who: Member, task: ArrayTask = "") -> Response:
    """Holds a pending job. If a lead or an admin holds another person's job, only a lead or an admin can release it."""
    await act_on_job(state, who, name, job_id, "hold", task)
    return Response(status_code=204)


@router.post("/{job_id}/release", status_code=204, name="release")
async def release_job(name: str, job_id: PathNumber, state: State, who: Member, task: ArrayTask = "") -> Response:
    """Releases a held job."""
    await act_on_job(state, who, name, job_id, "release", task)
    return Response(status_code=204)


@router.post("/actions", name="job.actions")
async def act_on_several_jobs(name: str, state: State, who: Member, request: JobsActionIn) -> JobsActionOut:
    """Cancels, requeues, holds or releases several jobs. The answer is 200 also where some or all of them could not be acted
    on: it has the result of each one."""
    return await act_on_jobs(state, who, name, request)


@router.get("/{job_id}/alternatives")
async def list_start_alternatives(name: str, job_id: PathNumber, state: State, who: Member) -> StartAlternativesOut:
    """Returns when a pending job would start as it is and if it asked for less, by Slurm's own test of a new job. Submits
    nothing."""
    return await load_start_alternatives(state, who, name, job_id)


@router.post("/{job_id}/stacks", name="stacks")
async def get_rank_stacks(
    name: str, job_id: PathNumber, state: State, who: Member, task: ArrayTask = ""
) -> JobStacksOut:
    """Returns where each rank of a running job is: the Python stack of its main thread. Each rank is stopped for some
    milliseconds."""
    return await read_rank_stacks(state, who, name, job_id, task)


@router.get("/{job_id}/runs")
async def list_job_runs(name: str, job_id: PathNumber, state: State, _: Anyone) -> JobRunsOut:
    """Returns every run of the job, with its placement on the network, and the incidents that affected it."""
    return await details.get_runs(state, name, job_id)


@router.get("/{job_id}/script")
async def get_job_script(name: str, job_id: PathNumber, state: State, who: Member) -> ScriptOut:
    """Returns the submitted script, as stored by Headway or otherwise by Slurm's accounting. Values of secrets are
    masked."""
    return await details.get_script(state, who, name, job_id)


@router.get("/{job_id}/tasks")
async def list_array_tasks(name: str, job_id: PathNumber, state: State, who: Member) -> ArrayOut:
    """Returns the number of an array's tasks by state; `total` is 0 for a job that is not an array."""
    return await details.get_array_tasks(state, who, name, job_id)


@router.get("/{job_id}/lineage")
async def show_lineage(name: str, job_id: PathNumber, state: State, who: Member) -> LineageOut:
    """Returns where a job comes from: what was submitted, by whom, from which commit, and what Slurm allocated."""
    return await get_lineage(state, who, name, job_id)
