"""Lists of jobs, a page at a time, out of the snapshot: however many look, Slurm is asked as often as when nobody does."""

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
from headway.services.context import AppState
from headway.services.identity import Principal
from headway.services.mappers import job_row, row_now
from headway.services.read_model.queue_query import (
    KINDS,
    Found,
    QueueAsk,
    QueueList,
    Search,
    carry_members,
    carry_on,
    find,
    in_order,
    key_of,
    kind_of,
    looks_at,
    page_of,
    sorts_by,
)
from headway.services.read_model.snapshot import Snapshot
from headway.services.read_model.snapshot_diff import PIECE, news_since

KNOWN = sorted(ENDED | RUNNING | WAITING)
MOST_KEPT = 256  # what was made of one snapshot, before it is forgotten
PATIENCE_S = 0.01  # of who asks, for an order that is still being made
OLD_S = 5.0  # and of a reading older than this nobody gets a page instead


async def list_jobs(state: AppState, name: str, who: Principal, ask: JobsAsk) -> JobsPage:
    """One page of a cluster's jobs. Raises NotFound, Refused for an order or cursor that does not exist, and Unreachable
    where Slurm was never read."""
    return JobsPage.model_validate_json(await jobs_body(state, name, who, ask))


async def jobs_body(state: AppState, name: str, who: Principal, ask: JobsAsk, *, packed: bool = False) -> bytes:
    """The same as its JSON, gzipped if `packed`. Made once for all who ask the same within a second."""
    who.require_cluster(name)
    cluster = await state.known(name)
    snapshot = await state.seen(cluster)
    if snapshot.as_of is None and snapshot.stale:
        raise Unreachable(f"the queue of {name} can't be read: {snapshot.stale}", hint=f"headway status {name}")
    question = asked(ask)
    jobs: tuple[JobState, ...] | None = None
    if "ended" in question.kinds and (ask.all or not ask.state or _ended(question.states)):
        jobs = snapshot.with_ended(await state.history(cluster))
    now = state.clock()
    second = int(now)
    key = (question, second, packed, None if jobs is None else len(jobs))
    kept = snapshot.kept.get(key)
    if kept is not None:
        return bytes(kept)
    page = await listed(snapshot, question, jobs, now, patience_s=PATIENCE_S)
    kept = page.of.kept.get(key)  # by another who waited
    if kept is not None:
        return bytes(kept)
    body = _body(page, now, snapshot.stale)
    if packed:
        body = gzip.compress(body, 4, mtime=0)
    if len(page.of.kept) > MOST_KEPT:
        page.of.kept.clear()
    page.of.kept[key] = body
    return body


def asked(ask: JobsAsk) -> QueueAsk:
    """The API's question as the queue's."""
    meant = {word: [known for known in KNOWN if word and known.startswith(word.upper())] for word in ask.state}
    for word, found in meant.items():
        if not found:
            raise Refused(f"no job is ever {word!r}", hint=f"a state is one of {', '.join(KNOWN)}, or how one begins")
    states = frozenset(known for found in meant.values() for known in found)
    every = ask.all or bool(ask.state)
    return QueueAsk(
        kinds=frozenset(KINDS) if every else frozenset({"running", "waiting"}),
        states=states,
        users=frozenset(ask.user),
        accounts=frozenset(ask.team),
        partitions=frozenset(ask.partition),
        node=ask.node,
        search=ask.q,
        sort=ask.sort,
        limit=ask.limit,
        cursor=ask.cursor,
    )


def _ended(states: frozenset[str]) -> bool:
    return any(kind_of(state) == "ended" for state in states)


def _body(page: Listed, now: float, stale: str) -> bytes:
    found, snapshot = page.found, page.of
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
class Listed:
    """A page, and the reading that it is of."""

    found: QueueList
    of: Snapshot


async def listed(
    snapshot: Snapshot,
    question: QueueAsk,
    jobs: tuple[JobState, ...] | None,
    now: float,
    *,
    patience_s: float | None = None,
) -> Listed:
    """One page of `jobs`; None: of the snapshot's own, whose order is made once for all who ask. Where that takes longer than
    `patience_s` it is the page of the reading before, if anybody asked the same of that."""
    if jobs is not None:
        return Listed(page_of(find(jobs, question, now), question), snapshot)
    # The order holds for as long as the snapshot does: a column that runs on runs on for all rows alike.
    whole = replace(question, cursor="", limit=0)
    orders = snapshot.orders
    held = orders.get(whole)
    if held is not None and held[0].of is snapshot.by_id:
        return Listed(page_of(held[0], question), snapshot)
    if held is not None and (news := news_since(snapshot, held[0].of)).knows(looks_at(whole) | sorts_by(whole)):
        found = carry_on(held[0], news, whole, now)
        if found is not None:
            orders[whole] = found, snapshot
            return Listed(page_of(found, question), snapshot)
    looking: asyncio.Task[Found] | None = snapshot.kept.get(("order", whole))
    if looking is None:
        made = _order(snapshot, whole, now, held[0] if held is not None else None)
        looking = snapshot.kept["order", whole] = asyncio.create_task(made)
    young = held is not None and (snapshot.as_of or 0.0) - (held[1].as_of or 0.0) < OLD_S
    if held is not None and young and not (await asyncio.wait({looking}, timeout=patience_s))[0]:
        return Listed(page_of(held[0], question), held[1])
    return Listed(page_of(await asyncio.shield(looking), question), snapshot)


async def _order(snapshot: Snapshot, whole: QueueAsk, now: float, before: Found | None) -> Found:
    """Piece by piece, others come to their turn in between: each minute all priorities change, and then the order of every
    question that is about them. (Another thread would take the interpreter from all that answer meanwhile.)"""
    async with snapshot.kept.setdefault("one order at a time", asyncio.Lock()):
        found = await _remade(snapshot, whole, now, before) if before is not None else None
        if found is None:
            search = Search(whole, now)
            async for piece in _pieces(snapshot.jobs):
                search.look(piece)
            found = search.found(snapshot.by_id)
    orders = snapshot.orders
    if len(orders) > MOST_KEPT:
        orders.clear()
    orders[whole] = found, snapshot
    return found


async def _remade(snapshot: Snapshot, whole: QueueAsk, now: float, before: Found) -> Found | None:
    """Who fits is another question than in which order, and has mostly the same answer as before. None where it has not."""
    news = news_since(snapshot, before.of)
    for name in sorted(looks_at(whole) | sorts_by(whole)):
        if not news.knows((name,)):
            news.few((name,))
            await asyncio.sleep(0)
    found = carry_on(before, news, whole, now)
    if found is None:
        found = carry_members(before, news, whole, now)
        if found is not None:
            found = in_order(found, await _keys(snapshot, whole, found, now), whole)
    return found


async def _keys(snapshot: Snapshot, whole: QueueAsk, found: Found, now: float) -> Mapping[int, Any]:
    """What these jobs are put in order by. The places in the usual order serve every question that has that order."""
    if whole.sort:
        return await _made(key_of(whole, now), [snapshot.by_id[number] for number in found.order])
    places: dict[int, int] | None = snapshot.kept.get("places")
    if places is None:
        keys = await _made(key_of(whole, now), snapshot.jobs)
        usual = sorted(keys, key=keys.__getitem__)
        places = snapshot.kept["places"] = {number: place for place, number in enumerate(usual)}
    return places


async def _made(key: Callable[[JobState], Any], jobs: Sequence[JobState]) -> dict[int, Any]:
    keys: dict[int, Any] = {}
    async for piece in _pieces(jobs):
        keys.update((job.id, key(job)) for job in piece)
    return keys


async def _pieces(jobs: Sequence[JobState]) -> AsyncIterator[Sequence[JobState]]:
    for start in range(0, len(jobs), PIECE):
        yield jobs[start : start + PIECE]
        if len(jobs) > PIECE:
            await asyncio.sleep(0)


def _row(snapshot: Snapshot, job: JobState, now: float) -> bytes:
    row = snapshot.rows.get(job.id) if snapshot.by_id.get(job.id) is job else None
    if row is None:
        row = job_row(job)
        if snapshot.by_id.get(job.id) is job:
            snapshot.rows[job.id] = row
    return row_now(job, row, now, snapshot.progress.get(job.id))
