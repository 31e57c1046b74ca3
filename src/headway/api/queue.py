"""One page of a cluster's queue: filtered, searched, sorted. Pure, over the snapshot's jobs."""

from __future__ import annotations

import base64
import binascii
import json
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from headway.domain.jobstate import RUNNING, WAITING
from headway.domain.live import JobState
from headway.errors import Refused
from headway.jobs.columns import BY_KEY, label, sort_key

KINDS = ("running", "waiting", "ended")
MOST = 1000  # jobs of one page
MOST_NEWS = 500  # jobs that are taken out and put in one by one
_RANK = {"running": 0, "waiting": 1, "ended": 2}


@dataclass(frozen=True, slots=True)
class QueueAsk:
    """Which jobs, in which order. Empty words ask for everything; several values of one kind are alternatives."""

    kinds: frozenset[str] = frozenset({"running", "waiting"})
    states: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    node: str = ""
    search: str = ""  # in number, name, user, account, partition, reason, nodes
    sort: str = ""  # a column's key, "-" in front: the other way round; "": running, then waiting by priority
    limit: int = 100
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class QueueList:
    jobs: tuple[JobState, ...]
    total: int  # that fit the question
    before: int  # of them before this page
    counts: Mapping[str, int]  # of every kind, whatever kinds were asked for
    next: str = ""  # cursor of the next page; "" at the end


def kind_of(state: str) -> str:
    """running | waiting | ended"""
    return "running" if state in RUNNING else "waiting" if state in WAITING else "ended"


@dataclass(frozen=True, slots=True)
class Found:
    """All that fit a question, in its order; the same for each of its pages."""

    jobs: Sequence[JobState]
    counts: Mapping[str, int]
    now: float  # which the order was made with
    of: Mapping[int, JobState] = field(default_factory=dict)  # the jobs it was found among


@dataclass(frozen=True, slots=True)
class Turnover:
    """What one reading's jobs have that another's have not. A job that changed is in both."""

    gone: Mapping[int, JobState]
    come: Sequence[JobState]


def turnover(before: Mapping[int, JobState], after: Mapping[int, JobState]) -> Turnover:
    """A job that did not change is the very same object in both."""
    gone = {number: job for number, job in before.items() if after.get(number) is not job}
    return Turnover(gone, [job for number, job in after.items() if before.get(number) is not job])


class Search:
    """Looks jobs through, all at once or a piece after the other. Raises Refused for an order that does not exist."""

    def __init__(self, ask: QueueAsk, now: float) -> None:
        self._ask, self._now = ask, now
        self._key, self._descending = _order(ask.sort, now)
        self._states: Counter[str] = Counter()
        self._found: list[tuple[Any, JobState]] = []  # with its place in the order, which no two jobs share

    def look(self, jobs: Iterable[JobState]) -> None:
        key, fitting = self._key, _fitting(jobs, self._ask)
        self._states.update(job.state for job in fitting)
        wanted = {state for state in self._states if kind_of(state) in self._ask.kinds}
        self._found += [(key(job), job) for job in fitting if job.state in wanted]

    def found(self) -> Found:
        counts = dict.fromkeys(KINDS, 0)
        for state, count in self._states.items():
            counts[kind_of(state)] += count
        self._found.sort(key=itemgetter(0), reverse=self._descending)
        return Found([job for _, job in self._found], counts, self._now)


def find(jobs: Iterable[JobState], ask: QueueAsk, now: float) -> Found:
    """All that fit. Raises Refused for an order that does not exist."""
    search = Search(ask, now)
    search.look(jobs)
    return search.found()


def carries_on(news: Turnover, ask: QueueAsk) -> bool:
    """Whether an order is worth carrying on: few jobs are another, and its places don't change by the clock alone."""
    column = BY_KEY.get(ask.sort.removeprefix("-"))
    return len(news.come) + len(news.gone) <= MOST_NEWS and not (column is not None and column.runs_on)


def carry_on(found: Found, jobs: Mapping[int, JobState], news: Turnover, ask: QueueAsk, now: float) -> Found:
    """What `find` says of the jobs of a later reading, out of what it said of an earlier one: to look at ten thousand jobs
    for each question and reading costs more than all else that a list needs."""
    key, descending = _order(ask.sort, now)
    counts = dict(found.counts)
    left = _fitting(news.gone.values(), ask)
    for job in left:
        counts[kind_of(job.state)] -= 1
    order = [job for job in found.jobs if job.id not in news.gone] if left else list(found.jobs)
    if descending:
        order.reverse()
    for job in _fitting(news.come, ask):
        kind = kind_of(job.state)
        counts[kind] += 1
        if kind in ask.kinds:
            insort(order, job, key=key)
    if descending:
        order.reverse()
    return Found(order, counts, now, jobs)


def page(jobs: Iterable[JobState], ask: QueueAsk, now: float) -> QueueList:
    """Raises Refused for an order or a cursor that does not exist. A cursor is the place of the last row of the page
    before, so a queue that changes in between loses and repeats nothing that stayed."""
    return page_of(find(jobs, ask, now), ask)


def page_of(whole: Found, ask: QueueAsk) -> QueueList:
    """One page of what `find` found."""
    found = whole.jobs
    key, descending = _order(ask.sort, whole.now)
    at = _after(found, ask, key, descending)
    shown = tuple(found[at : at + min(ask.limit, MOST)])
    more = at + len(shown) < len(found)
    return QueueList(
        shown,
        len(found),
        at,
        whole.counts,
        _cursor(ask.sort, key(shown[-1])) if more and shown else "",
    )


def _fitting(jobs: Iterable[JobState], ask: QueueAsk) -> list[JobState]:
    """Of every kind."""
    return list(jobs) if _asks_nothing(ask) else [job for job in jobs if _fits(job, ask)]


def _asks_nothing(ask: QueueAsk) -> bool:
    return not (ask.users or ask.accounts or ask.states or ask.partitions or ask.node or ask.search)


def _fits(job: JobState, ask: QueueAsk) -> bool:
    for wanted, value in (
        (ask.users, job.user),
        (ask.accounts, job.account),
        (ask.states, job.state),
    ):
        if wanted and value not in wanted:
            return False
    if ask.partitions and ask.partitions.isdisjoint(job.partition.split(",")):
        return False
    if ask.node and ask.node not in job.nodes:
        return False
    return not ask.search or _said(job, ask.search.casefold())


def _said(job: JobState, word: str) -> bool:
    texts = (job.name, label(job), str(job.id), job.user, job.account, job.partition, job.reason)
    return any(word in text.casefold() for text in texts) or any(word == node.casefold() for node in job.nodes)


def _order(sort: str, now: float) -> tuple[Any, bool]:
    if not sort:
        return (lambda job: (_RANK[kind_of(job.state)], *_turn(job), job.id)), False
    column = BY_KEY.get(sort.removeprefix("-"))
    if column is None:
        raise Refused(f"there is no column {sort[:40]!r} to sort by", hint="the names of squeue's --Format, in small")
    return sort_key(column, now), sort.startswith("-")


def _turn(job: JobState) -> tuple[int, int]:
    """Those that wait by priority, the longest running first, and of those that ended the latest."""
    if job.state in WAITING:
        return -job.priority, job.submit_time
    return (job.start_time, 0) if job.state in RUNNING else (-job.end_time, 0)


def _cursor(sort: str, key: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort, list(key)]).encode()).decode().rstrip("=")


def _after(found: Sequence[JobState], ask: QueueAsk, key: Any, descending: bool) -> int:
    """How many of them the cursor has passed."""
    if not ask.cursor:
        return 0
    try:
        sort, place = json.loads(base64.urlsafe_b64decode(ask.cursor + "=" * (-len(ask.cursor) % 4)))
        if sort != ask.sort:
            raise ValueError("of another order")
        passed = tuple(place)
        low, high = 0, len(found)
        while low < high:
            middle = (low + high) // 2
            here = key(found[middle])
            if (here >= passed) if descending else (here <= passed):
                low = middle + 1
            else:
                high = middle
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise Refused("the cursor is none of this list's", hint="leave it out to begin at the top") from None
    return low
