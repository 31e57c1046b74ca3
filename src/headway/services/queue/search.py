"""Filters, searches and sorts a cluster's queue and cuts it into pages. Pure, over the snapshot's jobs. By which values jobs
are sorted is declared in `services.queue.queue_fields`; the order without a field is here (`_turn`)."""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.domain.slurm.job_states import JOB_KINDS, RUNNING, WAITING, kind_of
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Refused
from headway.services.queue.query import QueueQuery
from headway.services.queue.queue_fields import BY_KEY, LABEL, sort_key
from headway.services.read_model.snapshot_diff import JobsDiff

MAX_PAGE = 1000  # jobs per page


@dataclass(frozen=True, slots=True)
class QueuePage:
    """One page of a job list."""

    jobs: tuple[JobState, ...]
    total: int  # jobs that match the query
    before: int  # how many of them are on earlier pages
    counts: Mapping[str, int]  # of every kind, regardless of the requested kinds
    next: str = ""  # cursor of the next page; "" on the last page


@dataclass(frozen=True, slots=True)
class QueryResult:
    """All jobs that match a query, in its order; shared by all of its pages."""

    order: Sequence[int]  # job numbers
    counts: Mapping[str, int]
    now: float  # time for which the order was computed
    of: Mapping[int, JobState]  # the jobs that were searched


class QueueSearch:
    """Searches jobs, all at once or in pieces. Raises Refused for an order that does not exist."""

    def __init__(self, query: QueueQuery, now: float) -> None:
        self._query, self._now = query, now
        self._key, self._descending = _order(query.sort, now)
        self._states: Counter[str] = Counter()
        self._keys: dict[int, Any] = {}  # sort key of each matching job; unique

    def add_jobs(self, jobs: Iterable[JobState]) -> None:
        """Adds the matching jobs of a piece."""
        key, fitting = self._key, _fitting(jobs, self._query)
        self._states.update(job.state for job in fitting)
        states = {state for state in self._states if kind_of(state) in self._query.kinds}
        self._keys.update((job.id, key(job)) for job in fitting if job.state in states)

    def result(self, of: Mapping[int, JobState]) -> QueryResult:
        """Returns the result. `of` are all jobs that were searched."""
        counts = dict.fromkeys(JOB_KINDS, 0)
        for state, count in self._states.items():
            counts[kind_of(state)] += count
        order = sorted(self._keys, key=self._keys.__getitem__, reverse=self._descending)
        return QueryResult(order, counts, self._now, of)


def find_jobs(jobs: Iterable[JobState], query: QueueQuery, now: float) -> QueryResult:
    """Returns all jobs that match. Raises Refused for an order that does not exist."""
    of = {job.id: job for job in jobs}
    search = QueueSearch(query, now)
    search.add_jobs(of.values())
    return search.result(of)


def update_result(found: QueryResult, diff: JobsDiff, query: QueueQuery, now: float) -> QueryResult | None:
    """Returns the result of `find_jobs` for a later reading, made from the result of an earlier one: searching ten
    thousand jobs for each query and reading is the most expensive part of a list. Returns None if that is not
    worthwhile, because many jobs changed in the fields of the query, or because the order depends on the time."""
    field = BY_KEY.get(query.sort.removeprefix("-"))
    changed = diff.changed_in(filter_fields(query) | sort_fields(query))
    if changed is None or (field is not None and field.runs_on):
        return None
    key, descending = _order(query.sort, now)
    before, after = diff.before, diff.after
    left, come, counts = _come_and_gone(found, diff, query, changed)
    order = list(found.order)
    if descending:
        order.reverse()
    for job in left:
        del order[bisect_left(order, key(job), key=lambda number: key(before[number]))]
    for job in come:
        insort(order, job.id, key=lambda number: key(after[number]))
    if descending:
        order.reverse()
    return QueryResult(order, counts, now, after)


def update_members(found: QueryResult, diff: JobsDiff, query: QueueQuery, now: float) -> QueryResult | None:
    """Returns the same as `update_result`, but without an order: used if all positions may have changed, as when
    priorities change."""
    changed = diff.changed_in(filter_fields(query))
    if changed is None:
        return None
    left, come, counts = _come_and_gone(found, diff, query, changed)
    out = {job.id for job in left}
    return QueryResult([*(n for n in found.order if n not in out), *(job.id for job in come)], counts, now, diff.after)


def _come_and_gone(
    found: QueryResult, diff: JobsDiff, query: QueueQuery, changed: Iterable[int]
) -> tuple[list[JobState], list[JobState], dict[str, int]]:
    """Returns (the jobs that leave the result, as they were; the jobs that enter it, as they are; the new counts by
    kind)."""
    counts = dict(found.counts)
    left = _fitting((diff.before[number] for number in (*diff.removed, *changed)), query)
    come = _fitting((diff.after[number] for number in (*diff.added, *changed)), query)
    for sign, jobs in ((-1, left), (1, come)):
        for job in jobs:
            counts[kind_of(job.state)] += sign
    left, come = ([job for job in jobs if kind_of(job.state) in query.kinds] for jobs in (left, come))
    return left, come, counts


def sort_result(found: QueryResult, keys: Mapping[int, Any], query: QueueQuery) -> QueryResult:
    """Returns the result in order. `keys` has for each job its `sort_key_of` value, or its position in that order."""
    return replace(found, order=sorted(found.order, key=keys.__getitem__, reverse=query.sort.startswith("-")))


def sort_key_of(query: QueueQuery, now: float) -> Callable[[JobState], Any]:
    """Returns the function that gives a job's sort key; keys are unique and the smallest comes first. Raises Refused
    for an order that does not exist."""
    key: Callable[[JobState], Any] = _order(query.sort, now)[0]
    return key


def page_of_result(whole: QueryResult, query: QueueQuery) -> QueuePage:
    """Returns one page of a result of `find_jobs`. Raises Refused for an order or a cursor that does not exist. A cursor is
    the position of the previous page's last row, so if the queue changes in between, no remaining row is lost or repeated."""
    order, of = _one_per_array(whole) if query.arrays_as_one else whole.order, whole.of
    passed, moment = _passed(query, whole.now)
    key, descending = _order(query.sort, moment)
    if moment != int(whole.now):
        order = sorted(order, key=lambda number: key(of[number]), reverse=descending)
    at = _after(order, of, passed, key, descending) if passed else 0
    shown = tuple(of[number] for number in order[at : at + min(query.limit, MAX_PAGE)])
    more = at + len(shown) < len(order)
    return QueuePage(
        shown,
        len(order),
        at,
        whole.counts,
        _cursor(query.sort, key(shown[-1]), moment) if more and shown else "",
    )


def _one_per_array(whole: QueryResult) -> list[int]:
    """Returns the order with only the first of the matching tasks of each array."""
    of, seen, order = whole.of, set(), []
    for number in whole.order:
        array = of[number].array_job_id
        if array in seen:
            continue
        if array:
            seen.add(array)
        order.append(number)
    return order


def _fitting(jobs: Iterable[JobState], query: QueueQuery) -> list[JobState]:
    """Returns the matching jobs of every kind."""
    return list(jobs) if _is_unfiltered(query) else [job for job in jobs if _fits(job, query)]


def _is_unfiltered(query: QueueQuery) -> bool:
    return not (
        query.users or query.accounts or query.states or query.partitions or query.node or query.array or query.search
    )


def _fits(job: JobState, query: QueueQuery) -> bool:
    for allowed, value in (
        (query.users, job.user),
        (query.accounts, job.account),
        (query.states, job.state),
    ):
        if allowed and value not in allowed:
            return False
    if query.partitions and query.partitions.isdisjoint(job.partition.split(",")):
        return False
    if query.node and query.node not in job.nodes:
        return False
    if query.array and query.array != job.array_job_id:
        return False
    return not query.search or _contains(job, query.search.casefold())


def _contains(job: JobState, word: str) -> bool:
    texts = (job.name, job.label, str(job.id), job.user, job.account, job.partition, job.reason)
    return any(word in text.casefold() for text in texts) or any(word == node.casefold() for node in job.nodes)


def filter_fields(query: QueueQuery) -> frozenset[str]:
    """Returns the fields of a job that decide whether it matches and of which kind it is."""
    filters: tuple[tuple[object, tuple[str, ...]], ...] = (
        (query.users, ("user",)),
        (query.accounts, ("account",)),
        (query.partitions, ("partition",)),
        (query.node, ("nodes",)),
        (query.array, ("array_job_id",)),
        (query.search, ("name", *LABEL, "user", "account", "partition", "reason", "nodes")),
    )
    return frozenset(("state", *(name for values, names in filters if values for name in names)))


def sort_fields(query: QueueQuery) -> frozenset[str]:
    """Returns the fields of a job that decide its position."""
    field = BY_KEY.get(query.sort.removeprefix("-"))
    return frozenset(field.reads if field else ("state", "priority", "submit_time", "start_time", "end_time"))


def _order(sort: str, now: float) -> tuple[Any, bool]:
    if not sort:
        return (lambda job: (JOB_KINDS.index(kind_of(job.state)), *_turn(job), job.id)), False
    field = BY_KEY.get(sort.removeprefix("-"))
    if field is None:
        raise Refused(f"unknown column {sort[:40]!r}", hint="use a name of squeue's --Format, in lower case")
    return sort_key(field, now), sort.startswith("-")


def _turn(job: JobState) -> tuple[int, int]:
    """Returns the sort key within a kind: pending jobs by priority, running jobs with the longest running first, ended
    jobs with the latest first."""
    if job.state in WAITING:
        return -job.priority, job.submit_time
    return (job.start_time, 0) if job.state in RUNNING else (-job.end_time, 0)


def _cursor(sort: str, key: Sequence[Any], moment: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort, list(key), moment]).encode()).decode().rstrip("=")


def _passed(query: QueueQuery, now: float) -> tuple[tuple[Any, ...], int]:
    """Returns (the key of the previous page's last row, or () for the first page; the time for which the order is
    computed). For fields that grow while a job runs or waits, that is the time of the first page: otherwise ended
    jobs would change their position a second later."""
    field = BY_KEY.get(query.sort.removeprefix("-"))
    if not query.cursor:
        return (), int(now)
    try:
        sort, place, moment = json.loads(base64.urlsafe_b64decode(query.cursor + "=" * (-len(query.cursor) % 4)))
        if sort != query.sort:
            raise ValueError("of another order")
        return tuple(place), int(moment) if field is not None and field.runs_on else int(now)
    except (ValueError, TypeError, OverflowError, binascii.Error, RecursionError):
        raise _foreign() from None


def _after(
    order: Sequence[int], of: Mapping[int, JobState], passed: tuple[Any, ...], key: Any, descending: bool
) -> int:
    """Returns how many of the jobs are before or at the cursor."""
    low, high = 0, len(order)
    try:
        while low < high:
            middle = (low + high) // 2
            here = key(of[order[middle]])
            if (here >= passed) if descending else (here <= passed):
                low = middle + 1
            else:
                high = middle
    except TypeError:  # the key has values of other types than this order's
        raise _foreign() from None
    return low


def _foreign() -> Refused:
    return Refused("the cursor does not belong to this list", hint="leave the cursor out to begin at the top")
