"""The page of an array: how far it is, and its tasks. Its address is that of a job (`pages.jobs.job`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fastapi import Request
from starlette.responses import Response

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError
from headway.jobs.view.array_tasks import array_out, known_array_out
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.clone import can_clone
from headway.services.queue.pending_reasons import job_history, pending_reason
from headway.web.page_stream import Parts, render_pulse, stream_parts
from headway.web.pages.jobs.job_reading import find_job, is_mine, read_lineage, read_script
from headway.web.rendering import render
from headway.web.views import array_tasks, job_head

TaskKind = Literal["", "failed", "running", "pending", "done", "cancelled"]


async def array_page(
    state: AppState, who: Principal, cluster: Cluster, job: JobState, *, show: TaskKind, cursor: int
) -> Response:
    """Returns the page of the array of which `job` is one task."""
    mine = await is_mine(state, cluster, who, job)
    return render(
        "array.html",
        viewer=who,
        name=cluster.name,
        tab="queue",
        job=job,
        show=show,
        cursor=cursor,
        parts=await _parts(state, who, cluster, job, show=show, cursor=cursor),
        mine=mine,
        script=await read_script(cluster.name, job.id, state, who) if mine else None,
        lineage=await read_lineage(cluster.name, job.array_job_id, state, who) if mine else None,
        pulse=render_pulse(state, cluster.name),
    )


def array_stream(
    request: Request, state: AppState, who: Principal, cluster: Cluster, label: str, *, show: TaskKind, cursor: int
) -> Response:
    """Returns the changes of the array's page as server-sent events."""

    async def make(viewer: Principal) -> Parts:
        job = await find_job(state, cluster, label)
        return await _parts(state, viewer, cluster, job, show=show, cursor=cursor)

    return stream_parts(request, state, who, cluster.name, make, prefix="array_")


async def _parts(
    state: AppState, who: Principal, cluster: Cluster, job: JobState, *, show: TaskKind, cursor: int
) -> Parts:
    array = job.array_job_id
    known = state.live.snapshot(cluster.name).with_ended(await job_history(state, cluster))
    tasks = [one for one in known if one.array_job_id == array]
    states = await _states(state, cluster, array)
    counts = array_out(states) if states else known_array_out(tasks)
    mine = await is_mine(state, cluster, who, job)
    clone = mine and await can_clone(state, cluster, who, job)
    return {
        "head": job_head.array_head(
            cluster.name, job, counts, pending_reason(state, cluster, job), mine=mine, clone=clone
        ),
        "counts": array_tasks.Counts(array, counts, show),
        "tasks": array_tasks.task_rows(cluster.name, array, states, tasks, show=show, cursor=cursor),
    }


async def _states(state: AppState, cluster: Cluster, array: int) -> Mapping[str, str]:
    """Returns the state of each task by its number; {} while it can't be read."""
    try:
        return await state.readings.array_states(cluster, array)
    except (HeadwayError, TimeoutError):
        return {}
