"""One job: its state, its timeline, its log, its origin, and the actions on it."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import cast

from fastapi import Request
from starlette.datastructures import FormData
from starlette.responses import HTMLResponse, Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.array_task import ArrayTask
from headway.api.http.failure_audit import audit_failure
from headway.api.http.path_numbers import PathNumber
from headway.api.http.security_headers import PAGE_HEADERS
from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotAllowed, NotFound
from headway.jobs.explain.efficiency import headline
from headway.jobs.submission.resume_point import kept_steps
from headway.jobs.view.array_tasks import array_out
from headway.schemas.base import API_PREFIX
from headway.schemas.jobs import JobRunOut, JobRunsOut
from headway.schemas.submission.reruns import ResumeIn
from headway.services.access.ownership_rights import is_owner_or_admin
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs import actions, details, resume
from headway.services.jobs.actions import Action
from headway.services.jobs.clone import can_clone
from headway.services.monitoring.job_efficiency import get_efficiency
from headway.services.queue.pending_reasons import pending_reason
from headway.services.queue.start_alternatives import load_start_alternatives
from headway.web import form_idempotency
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.page_stream import Parts, render_pulse, stream_parts
from headway.web.pages.jobs.array import TaskKind, array_page, array_stream
from headway.web.pages.jobs.job_reading import JobLabel, find_job, is_array, is_mine, read_lineage, read_script
from headway.web.rendering import render, render_part
from headway.web.views import job_facts, job_head, job_timeline
from headway.web.views.charts import job_charts
from headway.web.views.job_facts import Efficiency

router = page_router()
_DONE = {"cancel": "{} is cancelled", "requeue": "{} goes back to the queue", "hold": "{} is held",
         "release": "{} is released"}  # fmt: skip


@router.get("/clusters/{name}/jobs/{job_id}", response_model=None)
async def job_page(
    name: str, job_id: JobLabel, state: State, who: Anyone, show: TaskKind = "", cursor: int = 0
) -> Response:
    """Returns the page of a job (104) or of a task of an array (18_3); the number of an array (18) gives the page of the
    array, with its tasks of the kind `show` from number `cursor` on."""
    _, cluster = await state.clusters.get(name)
    found = await find_job(state, cluster, job_id)
    if is_array(job_id, found):
        return await array_page(state, who, cluster, found, show=show, cursor=max(0, cursor))
    number = found.id
    runs = await _runs(state, cluster, found)
    mine = await is_mine(state, cluster, who, found)
    clone = mine and await can_clone(state, cluster, who, found)
    as_owner = mine and is_owner_or_admin(who, found)
    parts = await _parts(state, cluster, found, runs, mine=mine, clone=clone, as_owner=as_owner)
    lineage = await read_lineage(name, found.array_job_id or number, state, who) if mine else None
    resumable = lineage is not None and not found.array_job_id and is_owner_or_admin(who, lineage)
    return render(
        "job.html",
        viewer=who,
        name=name,
        tab="queue",
        job=found,
        label=job_id,
        parts=parts,
        mine=mine,
        may_ask_less=as_owner and found.state in WAITING,
        script=await read_script(name, number, state, who) if mine else None,
        lineage=lineage,
        kept=[*reversed(kept_steps(lineage.checkpoints))] if lineage is not None and resumable else [],
        form_key=form_idempotency.new_form_key(),
        pulse=render_pulse(state, name),
        log=f"{API_PREFIX}/clusters/{name}/jobs/{number}/log",
        metrics=f"{API_PREFIX}/clusters/{name}/jobs/{number}/metrics",
        task=found.array_task if found.array_job_id == number and found.array_task.isdigit() else "",
        apart=found.stderr != found.stdout and found.stderr.startswith("/"),
    )


@router.get("/clusters/{name}/jobs/{job_id}/live", response_model=None)
async def job_stream(
    name: str,
    job_id: JobLabel,
    request: Request,
    state: State,
    who: Anyone,
    show: TaskKind = "",
    cursor: int = 0,
) -> Response:
    """Returns the changes of the page of a job or an array as server-sent events."""
    _, cluster = await state.clusters.get(name)
    if is_array(job_id, await find_job(state, cluster, job_id)):
        return array_stream(request, state, who, cluster, job_id, show=show, cursor=max(0, cursor))
    known: dict[tuple[object, ...], JobRunsOut] = {}
    cloned: dict[str, bool] = {}  # by person; the result does not change

    async def make(viewer: Principal) -> Parts:
        _, cluster = await state.clusters.get(name)
        found = await find_job(state, cluster, job_id)
        newest = tuple(incident.number for incident in await state.store.incidents.search(name, limit=1))
        key = (found.state, found.start_time, found.restarts, found.end_time, newest)
        if key not in known:  # accounting is queried only if the job has changed
            known.clear()
            known[key] = await _runs(state, cluster, found)
        mine = await is_mine(state, cluster, viewer, found)
        if mine and viewer.person not in cloned:
            cloned[viewer.person] = await can_clone(state, cluster, viewer, found)
        clone = mine and cloned[viewer.person]
        as_owner = mine and is_owner_or_admin(viewer, found)
        return await _parts(state, cluster, found, known[key], mine=mine, clone=clone, as_owner=as_owner)

    return stream_parts(request, state, who, name, make, prefix="job_")


@router.get("/clusters/{name}/jobs/{job_id}/efficiency", response_model=None)
async def job_efficiency(name: str, job_id: JobLabel, state: State, _: Anyone) -> Response:
    """Returns the part of the page with the verdict on the job's use of its resources; empty if there is none."""
    cluster = (await state.clusters.get(name))[1]
    job = await find_job(state, cluster, job_id)
    found = await get_efficiency(state, name, job)
    verdict = headline(found, ended=job.state not in RUNNING)
    return HTMLResponse(render_part("job_efficiency", Efficiency(verdict, found)), headers=PAGE_HEADERS)


@router.post("/clusters/{name}/jobs/{job_id}/resume", response_model=None)
async def resume_job(name: str, job_id: PathNumber, request: Request, state: State, who: Member) -> Response:
    """Submits the job again from a kept checkpoint, and redirects to the new job's page."""
    async with request.form(max_files=0, max_fields=5) as form:
        return await form_idempotency.submit_once(
            request, form, state, who, partial(_resume, name, job_id, form, request, state)
        )


async def _resume(
    name: str, job_id: int, form: FormData, request: Request, state: AppState, who: Principal
) -> form_idempotency.FormDone | Response:
    page = f"/clusters/{name}/jobs/{job_id}"
    text = str(form.get("step", ""))
    step = int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else 0
    try:
        done = await resume.resume_job(state, who, name, job_id, ResumeIn(step=step))
    except NotAllowed:
        raise
    except HeadwayError as error:
        await audit_failure(request, error)
        return redirect_with_message(page, f"{error.message}{f'; {error.hint}' if error.hint else ''}", is_error=True)
    return form_idempotency.FormDone(f"/clusters/{name}/jobs/{done.job_id}")


@router.get("/clusters/{name}/jobs/{job_id}/alternatives")
async def show_alternatives(name: str, job_id: PathNumber, state: State, who: Member) -> Response:
    """Returns the table of smaller requests with their starts, as a part of the page."""
    try:
        found = await load_start_alternatives(state, who, name, job_id)
    except NotAllowed:
        raise
    except HeadwayError as error:
        return HTMLResponse(render_part("start_alternatives", error), headers=PAGE_HEADERS)
    return HTMLResponse(render_part("start_alternatives", found), headers=PAGE_HEADERS)


@router.post("/clusters/{name}/jobs/{job_id}/{verb}", response_model=None)
async def act_on_job(
    name: str, job_id: PathNumber, verb: str, request: Request, state: State, who: Member, task: ArrayTask = ""
) -> Response:
    """Carries out cancel, requeue, hold or release and redirects to the job's page, which shows the result."""
    if verb not in _DONE:
        raise NotFound(f"unknown action {verb[:20]!r}", hint=f"use one of {', '.join(_DONE)}")
    page = f"/clusters/{name}/jobs/{job_id}{f'_{task}' if task else ''}"
    try:
        await actions.act_on_job(state, who, name, job_id, cast(Action, verb), task)
    except NotAllowed:
        raise
    except HeadwayError as error:
        await audit_failure(request, error)
        return redirect_with_message(page, error.message, is_error=True)
    return redirect_with_message(page, _DONE[verb].format(f"Task {task}" if task else f"Job {job_id}"))


async def _parts(
    state: AppState, cluster: Cluster, job: JobState, runs: JobRunsOut, *, mine: bool, clone: bool, as_owner: bool
) -> Parts:
    progress = await state.readings.progress(cluster, job)
    parts: dict[str, object] = {
        "head": job_head.head(
            cluster.name,
            job,
            pending_reason(state, cluster, job),
            mine=mine,
            clone=clone,
            as_owner=as_owner,
            error=await details.get_last_error(state, cluster, job) if mine else "",
        ),
        "facts": job_facts.facts(job, progress, runs, simulated=cluster.simulated_gpus),
        "timeline": job_timeline.timeline(cluster.name, job, runs),
        "chart": job_charts.loss_chart(job.id, progress),
        "use": job_charts.use_charts(cluster.name, job, simulated=cluster.simulated_gpus),
    }
    return parts | await _tasks(state, cluster, job)


async def _runs(state: AppState, cluster: Cluster, job: JobState) -> JobRunsOut:
    """Returns the job's runs from accounting; if that does not answer, the one run that slurmctld knows."""
    try:
        return await details.get_runs(state, cluster.name, job.id)
    except HeadwayError:
        nodes = compress(job.nodes)
        run = JobRunOut(state=job.state, submit_time=job.submit_time, start_time=job.start_time if job.nodes else 0,
                        end_time=job.end_time, nodelist=nodes, exit_code=job.exit_code)  # fmt: skip
        return JobRunsOut(runs=[run])


async def _tasks(state: AppState, cluster: Cluster, job: JobState) -> dict[str, object]:
    """Returns the state of the array's tasks; {} while it can't be read."""
    if job.array_job_id:
        with contextlib.suppress(HeadwayError, TimeoutError):
            out = array_out(await state.readings.array_states(cluster, job.array_job_id))
            return {"tasks": job_facts.Tasks(cluster.name, job.array_job_id, out)}
    return {}
