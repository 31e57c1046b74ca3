"""The queue with any column of squeue, filtered, sorted and searched on the server; the view is in the address; live."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Request
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, State
from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import kind_of
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, Refused
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.error_report import error_out
from headway.services.queue.array_counts import array_counts
from headway.services.queue.order_cache import find_page
from headway.services.queue.pending_reasons import pending_reason
from headway.services.queue.query import QueueQuery
from headway.services.queue.search import QueuePage
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.page_stream import Parts, render_pulse, stream_parts
from headway.web.rendering import render
from headway.web.views.queue import queue_address, queue_chips, queue_rows
from headway.web.views.queue.queue_address import QueueAddress
from headway.web.views.queue.queue_rows import ArrayTasks, Foot, Rows

router = page_router()


@router.get("/clusters/{name}/queue", response_model=None)
async def queue_page(name: str, request: Request, state: State, who: Anyone) -> Response:
    """Returns the page of the queue."""
    _, cluster = await state.clusters.get(name)
    query = QueueAddress.of(request.query_params.getlist)
    try:
        parts = await _parts(state, cluster, query, who)
    except Refused:  # the cursor belongs to another sort order: start at the first page
        return redirect_with_message(f"/clusters/{name}/queue{query.to()}")
    jobs = state.live.snapshot(name).jobs
    return render(
        "queue.html",
        viewer=who,
        name=name,
        tab="queue",
        query=query,
        parts=parts,
        pulse=render_pulse(state, name),
        groups=queue_rows.GROUPS,
        may_act=who.may(Right.RUN_JOBS) or who.may(Right.ADMIN),
        own_only=not (who.may(Right.ADMIN) or who.may(Right.LEAD_TEAM)),
        sizes=queue_address.SIZES,
        users=sorted({job.user for job in jobs}),
        teams=[team.name for team in cluster.teams],
        partitions=[partition.name for partition in cluster.partitions],
    )


@router.get("/clusters/{name}/queue/live", response_model=None)
async def queue_stream(name: str, request: Request, state: State, who: Anyone) -> Response:
    """Returns the changes of the queue's page as server-sent events."""
    query = QueueAddress.of(request.query_params.getlist)

    async def make(viewer: Principal) -> Parts:
        return await _parts(state, await state.clusters.cached(name), query, viewer)

    return stream_parts(request, state, who, name, make, prefix="queue_")


async def _parts(state: AppState, cluster: Cluster, query: QueueAddress, who: Principal) -> Parts:
    """Returns the page's parts. They are computed once per reading for all viewers with the same query."""
    now, queue_query, snapshot = state.clock(), query.to_queue_query(), state.live.snapshot(cluster.name)
    key = ("queue page", query)
    kept: tuple[QueuePage, Rows, Foot] | None = snapshot.derived.get(key)
    if kept is None:
        jobs, gap = None, ""
        if "ended" in queue_query.kinds:
            try:
                jobs = snapshot.with_ended(await state.readings.history(cluster))
            except (HeadwayError, TimeoutError, OSError) as error:
                gap = error_out(error).message
        found = (await find_page(snapshot, queue_query, jobs, now)).page
        arrays = await _arrays(state, cluster, found, queue_query, jobs if jobs is not None else snapshot.jobs)
        rows = queue_rows.rows(
            cluster.name,
            found,
            query,
            lambda job: pending_reason(state, cluster, job),
            now,
            arrays=arrays,
            read=snapshot.as_of is not None,
        )
        kept = snapshot.derived[key] = (found, rows, queue_rows.foot(found, query, gap))
    found, rows, foot = kept
    return {"chips": queue_chips.chips(found, query, who.user), "rows": rows, "foot": foot}


async def _arrays(
    state: AppState, cluster: Cluster, found: QueuePage, query: QueueQuery, jobs: Iterable[JobState]
) -> dict[int, ArrayTasks]:
    """Returns the tasks of each array that has one row on this page."""
    shown = {job.array_job_id for job in found.jobs if job.array_job_id} if query.arrays_as_one else set()
    if not shown:
        return {}
    every: dict[int, list[JobState]] = {number: [] for number in shown}
    for job in jobs:
        if job.array_job_id in shown:
            every[job.array_job_id].append(job)
    counts = await array_counts(state, cluster, every)
    return {
        number: ArrayTasks(counts[number], tuple(job for job in tasks if kind_of(job.state) in query.kinds))
        for number, tasks in every.items()
    }
