"""Pages of the job list, made from the snapshot: the number of viewers does not change how often Slurm is read."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.domain.slurm.job_states import ENDED, RUNNING, WAITING
from headway.domain.slurm.state import JobState
from headway.errors import Refused, Unreachable
from headway.schemas.jobs import JobsAsk, JobsPage
from headway.services.app_state import AppState
from headway.services.identity import Principal
from headway.services.read_model.queue_search import (
    KINDS,
    QueryResult,
    QueuePage,
    QueueQuery,
    QueueSearch,
    filter_fields,
    find_jobs,
    kind_of,
    page_of_result,
    sort_fields,
    sort_key_of,
    sort_result,
    update_members,
    update_result,
)
from headway.services.read_model.snapshot import Snapshot
from headway.services.read_model.snapshot_diff import BATCH, diff_since
from headway.services.to_schemas import job_row, row_now

JOB_STATES = sorted(ENDED | RUNNING | WAITING)
MAX_CACHED = 256  # entries derived from one snapshot, before they are dropped
ORDER_WAIT_S = 0.01  # seconds that a request waits for an order that is still being computed
MAX_OLD_PAGE_S = 5.0  # seconds; no page of an older reading is returned instead


async def jobs_page_json(
    state: AppState, name: str, who: Principal, query: JobsAsk, *, compressed: bool = False
) -> bytes:
    """Returns one page of a cluster's jobs as JSON, gzipped if `compressed`. Equal requests within a second share one
    response. Raises NotFound, Refused for an order or cursor that does not exist, and Unreachable if Slurm was never
    read."""
    who.require_cluster(name)
    cluster = await state.clusters.cached(name)
    snapshot = await state.readings.snapshot(cluster)
    if snapshot.as_of is None and snapshot.stale:
        raise Unreachable(f"the queue of {name} can't be read: {snapshot.stale}", hint=f"headway status {name}")
    question = queue_query_of(query)
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


def queue_query_of(query: JobsAsk) -> QueueQuery:
    """Returns the request's filters and order as a QueueQuery. Raises Refused for an unknown job state."""
    meant = {word: [known for known in JOB_STATES if word and known.startswith(word.upper())] for word in query.state}
    for word, found in meant.items():
        if not found:
            raise Refused(
                f"unknown job state {word!r}", hint=f"use one of {', '.join(JOB_STATES)}, or its first letters"
            )
    states = frozenset(known for found in meant.values() for known in found)
    every = query.all or bool(query.state)
    return QueueQuery(
        kinds=frozenset(KINDS) if every else frozenset({"running", "waiting"}),
        states=states,
        users=frozenset(query.user),
        accounts=frozenset(query.team),
        partitions=frozenset(query.partition),
        node=query.node,
        search=query.q,
        sort=query.sort,
        limit=query.limit,
        cursor=query.cursor,
    )


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


@dataclass(frozen=True, slots=True)
class PageOfSnapshot:
    """A page, and the reading that it was made from."""

    page: QueuePage
    snapshot: Snapshot


async def find_page(
    snapshot: Snapshot,
    question: QueueQuery,
    jobs: tuple[JobState, ...] | None,
    now: float,
    *,
    patience_s: float | None = None,
) -> PageOfSnapshot:
    """Returns one page of `jobs`; with None, of the snapshot's own jobs, whose order is computed once for all requests.
    If that takes longer than `patience_s`, returns the page of the previous reading, if the same query was made of
    it."""
    if jobs is not None:
        return PageOfSnapshot(page_of_result(find_jobs(jobs, question, now), question), snapshot)
    # The order stays valid as long as the snapshot: a column that grows with time grows equally for all rows.
    whole = replace(question, cursor="", limit=0)
    orders = snapshot.job_orders
    cached = orders.get(whole)
    if cached is not None and cached[0].of is snapshot.by_id:
        return PageOfSnapshot(page_of_result(cached[0], question), snapshot)
    if cached is not None and (news := diff_since(snapshot, cached[0].of)).is_cheap(
        filter_fields(whole) | sort_fields(whole)
    ):
        found = update_result(cached[0], news, whole, now)
        if found is not None:
            orders[whole] = found, snapshot
            return PageOfSnapshot(page_of_result(found, question), snapshot)
    looking: asyncio.Task[QueryResult] | None = snapshot.derived.get(("order", whole))
    if looking is None:
        made = _order(snapshot, whole, now, cached[0] if cached is not None else None)
        looking = snapshot.derived["order", whole] = asyncio.create_task(made)
    young = cached is not None and (snapshot.as_of or 0.0) - (cached[1].as_of or 0.0) < MAX_OLD_PAGE_S
    if cached is not None and young and not (await asyncio.wait({looking}, timeout=patience_s))[0]:
        return PageOfSnapshot(page_of_result(cached[0], question), cached[1])
    return PageOfSnapshot(page_of_result(await asyncio.shield(looking), question), snapshot)


async def _order(snapshot: Snapshot, whole: QueueQuery, now: float, before: QueryResult | None) -> QueryResult:
    """Computes the order in pieces, so that other tasks can run in between: each minute all priorities change, and with
    them the order of every query that uses them. (A thread would take the interpreter away from all other requests.)"""
    async with snapshot.derived.setdefault("order_lock", asyncio.Lock()):
        found = await _remade(snapshot, whole, now, before) if before is not None else None
        if found is None:
            search = QueueSearch(whole, now)
            async for piece in _pieces(snapshot.jobs):
                search.add_jobs(piece)
            found = search.result(snapshot.by_id)
    orders = snapshot.job_orders
    if len(orders) > MAX_CACHED:
        orders.clear()
    orders[whole] = found, snapshot
    return found


async def _remade(snapshot: Snapshot, whole: QueueQuery, now: float, before: QueryResult) -> QueryResult | None:
    """Returns the new result from the previous one, or None if that is not possible. Which jobs match and in which
    order are separate questions, and the former mostly has the same answer as before."""
    news = diff_since(snapshot, before.of)
    for name in sorted(filter_fields(whole) | sort_fields(whole)):
        if not news.is_cheap((name,)):
            news.changed_in((name,))
            await asyncio.sleep(0)
    found = update_result(before, news, whole, now)
    if found is None:
        found = update_members(before, news, whole, now)
        if found is not None:
            found = sort_result(found, await _keys(snapshot, whole, found, now), whole)
    return found


async def _keys(snapshot: Snapshot, whole: QueueQuery, found: QueryResult, now: float) -> Mapping[int, Any]:
    """Returns the sort keys of these jobs by number. The positions in the default order serve every query with that
    order."""
    if whole.sort:
        return await _sort_keys(sort_key_of(whole, now), [snapshot.by_id[number] for number in found.order])
    places: dict[int, int] | None = snapshot.derived.get("places")
    if places is None:
        keys = await _sort_keys(sort_key_of(whole, now), snapshot.jobs)
        usual = sorted(keys, key=keys.__getitem__)
        places = snapshot.derived["places"] = {number: place for place, number in enumerate(usual)}
    return places


async def _sort_keys(key: Callable[[JobState], Any], jobs: Sequence[JobState]) -> dict[int, Any]:
    keys: dict[int, Any] = {}
    async for piece in _pieces(jobs):
        keys.update((job.id, key(job)) for job in piece)
    return keys


async def _pieces(jobs: Sequence[JobState]) -> AsyncIterator[Sequence[JobState]]:
    for start in range(0, len(jobs), BATCH):
        yield jobs[start : start + BATCH]
        if len(jobs) > BATCH:
            await asyncio.sleep(0)


def _row(snapshot: Snapshot, job: JobState, now: float) -> bytes:
    row = snapshot.job_rows.get(job.id) if snapshot.by_id.get(job.id) is job else None
    if row is None:
        row = job_row(job)
        if snapshot.by_id.get(job.id) is job:
            snapshot.job_rows[job.id] = row
    return row_now(job, row, now, snapshot.progress.get(job.id))
