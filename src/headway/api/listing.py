"""Lists of jobs, a page at a time, out of the snapshot: however many look, Slurm is asked as often as when nobody does."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import replace

from headway.api.access import Principal
from headway.api.live import Snapshot
from headway.api.queue import KINDS, Found, QueueAsk, QueueList, Turnover, find, find_anew, kind_of, page_of, turnover
from headway.api.shapes import job_row, row_now
from headway.api.state import AppState
from headway.domain.jobstate import ENDED, RUNNING, WAITING
from headway.domain.live import JobState
from headway.errors import Unreachable
from headway.wire.jobs import JobsAsk, JobsPage

KNOWN = sorted(ENDED | RUNNING | WAITING)
MOST_KEPT = 256  # what was made of one snapshot, before it is forgotten
UNASKED_S = 60.0  # then an order is forgotten, and the reading that it was made of


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
    body = _body(snapshot, question, jobs, now)
    if packed:
        body = gzip.compress(body, 4, mtime=0)
    if len(snapshot.kept) > MOST_KEPT:
        snapshot.kept.clear()
    snapshot.kept[key] = body
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


def _body(snapshot: Snapshot, question: QueueAsk, jobs: tuple[JobState, ...] | None, now: float) -> bytes:
    page = listed(snapshot, question, jobs, now)
    out = JobsPage(
        jobs=[],
        total=page.total,
        before=page.before,
        counts=dict(page.counts),
        next=page.next,
        as_of=snapshot.as_of,
        stale=snapshot.stale,
    )
    rows = b",".join(_row(snapshot, job, now) for job in page.jobs)
    return b'{"jobs":[' + rows + b"]," + out.model_dump_json(exclude={"jobs"}).encode()[1:]


def listed(snapshot: Snapshot, question: QueueAsk, jobs: tuple[JobState, ...] | None, now: float) -> QueueList:
    """One page of `jobs`; None: of the snapshot's own, whose order is made once for all who ask."""
    if jobs is not None:
        return page_of(find(jobs, question, now), question)
    # The order holds for as long as the snapshot does: a column that runs on runs on for all rows alike.
    whole = replace(question, cursor="", limit=0)
    orders = snapshot.orders
    found: Found | None = orders.get(whole)
    if found is None or found.of is not snapshot.by_id:
        for old in [one for one, made in orders.items() if now - made.now > UNASKED_S]:
            del orders[old]
        if len(orders) > MOST_KEPT:
            orders.clear()
        if found is None:
            found = replace(find(snapshot.jobs, question, now), of=snapshot.by_id)
        else:
            found = find_anew(found, snapshot.by_id, _news(snapshot, found.of), question, now)
        orders[whole] = found
    return page_of(found, question)


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
