"""Pages of the job list as JSON, made from the snapshot and kept for a second: the number of viewers does not change how often
Slurm is read. The pages themselves come from `services.queue.order_cache`."""

from __future__ import annotations

import gzip

from headway.domain.slurm.job_states import kind_of
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Unreachable
from headway.schemas.job_list import JobsPage, JobsQuery
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.job_to_schema import job_row, row_now
from headway.services.queue.order_cache import PageOfSnapshot, find_page
from headway.services.queue.query import parse_queue_query
from headway.services.read_model.snapshot import Snapshot

MAX_CACHED = 256  # pages of one snapshot, before they are dropped
ORDER_WAIT_S = 0.01  # seconds that a request waits for an order that is still being computed


async def jobs_page_json(
    state: AppState, name: str, who: Principal, query: JobsQuery, *, compressed: bool = False
) -> bytes:
    """Returns one page of a cluster's jobs as JSON, gzipped if `compressed`. Equal requests within a second share one
    response. Raises NotFound, Refused for an order or cursor that does not exist, and Unreachable if Slurm was never
    read."""
    who.require_cluster(name)
    cluster = await state.clusters.cached(name)
    snapshot = await state.readings.snapshot(cluster)
    if snapshot.as_of is None and snapshot.stale:
        raise Unreachable(f"the queue of {name} can't be read: {snapshot.stale}", hint=f"headway status {name}")
    question = parse_queue_query(query)
    jobs: tuple[JobState, ...] | None = None
    if "ended" in question.kinds and (query.all or not query.state or _ended(question.states)):
        jobs = snapshot.with_ended(await state.readings.history(cluster))
    now = state.clock()
    second = int(now)
    key = (question, second, compressed, None if jobs is None else len(jobs))
    kept = snapshot.derived.get(key)
    if kept is not None:
        return bytes(kept)
    page = await find_page(snapshot, question, jobs, now, patience_s=ORDER_WAIT_S)
    kept = page.snapshot.derived.get(key)  # made by another request meanwhile
    if kept is not None:
        return bytes(kept)
    body = _body(page, now, snapshot.stale)
    if compressed:
        body = gzip.compress(body, 4, mtime=0)
    if len(page.snapshot.derived) > MAX_CACHED:
        page.snapshot.derived.clear()
    page.snapshot.derived[key] = body
    return body


def _ended(states: frozenset[str]) -> bool:
    return any(kind_of(state) == "ended" for state in states)


def _body(page: PageOfSnapshot, now: float, stale: str) -> bytes:
    found, snapshot = page.page, page.snapshot
    out = JobsPage(
        jobs=[],
        total=found.total,
        before=found.before,
        counts=dict(found.counts),
        next=found.next,
        as_of=snapshot.as_of,
        stale=stale,
    )
    rows = b",".join(_row(snapshot, job, now) for job in found.jobs)
    return b'{"jobs":[' + rows + b"]," + out.model_dump_json(exclude={"jobs"}).encode()[1:]


def _row(snapshot: Snapshot, job: JobState, now: float) -> bytes:
    row = snapshot.job_rows.get(job.id) if snapshot.by_id.get(job.id) is job else None
    if row is None:
        row = job_row(job)
        if snapshot.by_id.get(job.id) is job:
            snapshot.job_rows[job.id] = row
    return row_now(job, row, now, snapshot.progress.get(job.id))
