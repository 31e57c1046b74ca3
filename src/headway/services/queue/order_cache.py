"""Finds pages of the job list in a snapshot. The order of each query is computed once for all viewers and carried over from one
reading of Slurm to the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.services.queue.query import QueueQuery
from headway.services.queue.search import (
    QueryResult,
    QueuePage,
    QueueSearch,
    filter_fields,
    find_jobs,
    page_of_result,
    sort_fields,
    sort_key_of,
    sort_result,
    update_members,
    update_result,
)
from headway.services.read_model.snapshot import Snapshot
from headway.services.read_model.snapshot_diff import BATCH, diff_since

MAX_CACHED = 256  # orders of one snapshot, before they are dropped
MAX_OLD_PAGE_S = 5.0  # seconds; no page of an older reading is returned instead


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
    whole = replace(question, cursor="", limit=0, arrays_as_one=False)
    orders = snapshot.job_orders
    cached = orders.get(whole)
    if cached is not None and cached[0].of is snapshot.by_id:
        return PageOfSnapshot(page_of_result(cached[0], question), snapshot)
    if cached is not None and (diff := diff_since(snapshot, cached[0].of)).is_cheap(
        filter_fields(whole) | sort_fields(whole)
    ):
        found = update_result(cached[0], diff, whole, now)
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
    diff = diff_since(snapshot, before.of)
    for name in sorted(filter_fields(whole) | sort_fields(whole)):
        if not diff.is_cheap((name,)):
            diff.changed_in((name,))
            await asyncio.sleep(0)
    found = update_result(before, diff, whole, now)
    if found is None:
        found = update_members(before, diff, whole, now)
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
