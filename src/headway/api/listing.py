"""Lists of jobs, a page at a time, out of the snapshot: however many look, Slurm is asked as often as when nobody does."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.api.access import Principal
from headway.api.live import Snapshot
from headway.api.queue import (
    KINDS,
    Found,
    QueueAsk,
    QueueList,
    Search,
    Turnover,
    carries_on,
    carry_on,
    find,
    kind_of,
    page_of,
    turnover,
)
from headway.api.shapes import job_row, row_now
from headway.api.state import AppState
from headway.domain.jobstate import ENDED, RUNNING, WAITING
from headway.domain.live import JobState
from headway.errors import Unreachable
from headway.wire.jobs import JobsAsk, JobsPage

KNOWN = sorted(ENDED | RUNNING | WAITING)
MOST_KEPT = 256  # what was made of one snapshot, before it is forgotten
PIECE = 250  # jobs that are looked through at a time
PATIENCE_S = 0.03  # of who asks, for an order that is still being made
OLD_S = 5.0  # and of a reading older than this nobody gets a page instead


async def list_jobs(state: AppState, name: str, who: Principal, ask: JobsAsk) -> JobsPage:
    """One page of a cluster's jobs. Raises NotFound, Refused for an order or cursor that does not exist, and Unreachable
    where Slurm was never read."""
    return JobsPage.model_validate_json(await jobs_body(state, name, who, ask))


async def jobs_body(state: AppState, name: str, who: Principal, ask: JobsAsk, *, packed: bool = False) -> bytes:
    """The same as its JSON, gzipped if `packed`. Made once for all who ask the same within a second."""
    who.must_reach(name)
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
    states = frozenset(known for word in ask.state for known in KNOWN if known.startswith(word.upper()))
    if ask.state and not states:
        states = frozenset({"no such state"})
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
    if held is not None and carries_on(news := _news(snapshot, held[0].of), question):
        held = orders[whole] = carry_on(held[0], snapshot.by_id, news, question, now), snapshot
        return Listed(page_of(held[0], question), snapshot)
    looking: asyncio.Task[Found] | None = snapshot.kept.get(("order", whole))
    if looking is None:
        looking = snapshot.kept["order", whole] = asyncio.create_task(_order(snapshot, whole, now))
    young = held is not None and (snapshot.as_of or 0.0) - (held[1].as_of or 0.0) < OLD_S
    if held is not None and young and not (await asyncio.wait({looking}, timeout=patience_s))[0]:
        return Listed(page_of(held[0], question), held[1])
    return Listed(page_of(await asyncio.shield(looking), question), snapshot)


async def _order(snapshot: Snapshot, whole: QueueAsk, now: float) -> Found:
    async with snapshot.kept.setdefault("one order at a time", asyncio.Lock()):
        found = replace(await _find(snapshot.jobs, whole, now), of=snapshot.by_id)
    orders = snapshot.orders
    if len(orders) > MOST_KEPT:
        orders.clear()
    orders[whole] = found, snapshot
    return found


async def _find(jobs: tuple[JobState, ...], question: QueueAsk, now: float) -> Found:
    """Piece by piece, others come to their turn in between: each minute all priorities change, and then every question's
    order. (Another thread would take the interpreter from all that answer meanwhile.)"""
    search = Search(question, now)
    for start in range(0, len(jobs), PIECE):
        search.look(jobs[start : start + PIECE])
        if len(jobs) > PIECE:
            await asyncio.sleep(0)
    return search.found()


def _news(snapshot: Snapshot, before: Mapping[int, JobState]) -> Turnover:
    """Looked for once a reading: all questions of the one before ask it."""
    known: tuple[Mapping[int, JobState], Turnover] | None = snapshot.kept.get("turnover")
    if known is None or known[0] is not before:
        known = snapshot.kept["turnover"] = before, turnover(before, snapshot.by_id)
    return known[1]


def _row(snapshot: Snapshot, job: JobState, now: float) -> bytes:
    row = snapshot.rows.get(job.id) if snapshot.by_id.get(job.id) is job else None
    if row is None:
        row = job_row(job)
        if snapshot.by_id.get(job.id) is job:
            snapshot.rows[job.id] = row
    return row_now(job, row, now, snapshot.progress.get(job.id))
