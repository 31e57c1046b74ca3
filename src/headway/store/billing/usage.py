"""Sums for reports over up to a million runs, made by the database, one kind of run after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    bindparam,
    false,
    func,
    literal_column,
    or_,
    select,
)

from headway.domain.billing import GroupUsage
from headway.store.billing.run_sums import Only, ReportSpan, RunSums, fits
from headway.store.billing.runs import KIND
from headway.store.db import billing_schema as t
from headway.store.db.billing_schema import UNITS, USED
from headway.store.db.transactions import Database, StorePart

Order = Literal["latest", "lossy", "waited"]
RunPlace = tuple[int | str, ...]  # of a run in a list: what the list goes by
_ALL = Only()
BY = ("team", "user", "partition", "gpu_type", "group")


@dataclass(frozen=True, slots=True)
class Behind:
    """Which runs took what a cause of loss says. `lost`, `idle`, `saved`: those that lost work, that idled, whose jobs tell of
    their checkpoints. `state` and `nodes`: how they ended that lost work ("" of state: requeued, "*": whatever). `runs`: only
    these (job, start), where they are known one by one, and `but` none of those. `since`: of `saved`, only runs from then on:
    before, another cluster had the name, and its jobs the same numbers."""

    lost: bool = False
    idle: bool = False
    saved: bool = False
    state: str = "*"
    nodes: str = ""
    runs: tuple[tuple[int, int], ...] | None = None
    but: tuple[tuple[int, int], ...] = ()
    since: int = 0


_A_JOB = 2**32  # more than any unix second


@dataclass(frozen=True, slots=True)
class Total:
    """One row of a usage report. `by` has the values asked for; the rest are sums over the stretch. `unmeasured_gpu_s` and
    `unmeasured_cpu_s`: held while nobody measured the GPUs' power, or read the counters of the nodes. `waited_s` counts each
    run once, in the stretch it began in; `waited_gpu_s` each GPU of it."""

    by: tuple[str, ...]
    runs: int
    gpu_s: int
    cpu_s: int
    lost_gpu_s: int
    idle_gpu_s: int
    waited_s: int
    waited_gpu_s: int
    energy_j: int
    unmeasured_gpu_s: int
    unmeasured_cpu_s: int


@dataclass(frozen=True, slots=True)
class Times:
    """As in Total: what goodput is made of. The times of two stretches sum to those of both together."""

    gpu_s: int = 0
    lost_gpu_s: int = 0
    idle_gpu_s: int = 0
    waited_gpu_s: int = 0

    def __add__(self, other: Times) -> Times:
        return Times(
            self.gpu_s + other.gpu_s,
            self.lost_gpu_s + other.lost_gpu_s,
            self.idle_gpu_s + other.idle_gpu_s,
            self.waited_gpu_s + other.waited_gpu_s,
        )


_TIMES = tuple(Times.__dataclass_fields__)  # names of sums
_HELD = 3  # sums of a Use


@dataclass(frozen=True, slots=True)
class Cell:
    """What runs held of node groups, by any key. `times`: empty unless asked for."""

    by: tuple[str, ...]
    group: str
    use: GroupUsage
    times: Times = Times()


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as lists show it; of several groups, one row each."""

    job: int
    start: int
    end: int
    eligible: int
    group: str
    team: str
    user: str
    partition: str
    state: str
    nodes: str
    node_count: int
    gpu_type: str
    gpus: int
    cpus: int
    units: int
    per_node: int
    memory_mib: int
    time_limit_s: int | None
    used_cpu_s: int
    used_memory_mib: int
    lost_s: int
    measured_s: int
    idle_s: int
    energy_j: int
    cpu_measured_s: int
    saved_at: float | None


def run_place(run: RunRow, first: Order, behind: Behind | None) -> RunPlace:
    """Its place among the runs that `runs` lists with these words."""
    return tuple(value for value, _ in _order(run, first, behind))


def _order(of: Any, first: Order, behind: Behind | None) -> list[tuple[Any, bool]]:
    """What a list of runs goes by, of a row or of the table's columns, and whether the largest is first. No two are alike."""
    if behind is not None:
        wasted = [of.lost_s] * behind.lost + [of.idle_s] * behind.idle
        dearest = [(of.units * sum(wasted[1:], wasted[0]), True)] if wasted else []
        return [*dearest, (of.start, True), (of.job, False), (of.group, False)]
    if first == "latest":
        return [(of.start, True), (of.job, True), (of.group, False)]
    amount = of.units * (of.lost_s + of.idle_s) if first == "lossy" else of.start - of.eligible
    return [(amount, True), (of.job, False), (of.start, False), (of.group, False)]


def _later(order: list[tuple[Any, bool]], place: RunPlace) -> ColumnElement[bool]:
    """Whether a row comes behind the place."""
    found: ColumnElement[bool] = false()
    for (value, falls), mark in reversed(list(zip(order, place, strict=True))):
        found = or_(value < mark if falls else value > mark, and_(value == mark, found))
    return found


class UsageReports(StorePart):
    def __init__(self, database: Database, sums: RunSums) -> None:
        super().__init__(database)
        self._sums = sums

    async def totals(self, cluster: str, span: ReportSpan, by: Sequence[str], only: Only = _ALL) -> list[Total]:
        """Sums for each value of `by` (names of BY), the most GPU-seconds first."""
        found: dict[tuple[str, ...], list[int]] = {}
        for kind, sums in await self._sums.by_kind(cluster, span, only, self._sums.sums(span), USED):
            mine = found.setdefault(tuple(kind[name] for name in by), [0] * len(sums))
            for i, value in enumerate(sums):
                mine[i] += value
        totals = [Total(name, *sums) for name, sums in found.items()]
        return sorted(totals, key=lambda one: (-one.gpu_s, -one.cpu_s, one.by))

    async def unit_seconds(
        self, cluster: str, span: ReportSpan, by: Sequence[str] = (), only: Only = _ALL, *, timed: bool = False
    ) -> list[Cell]:
        """What was held of each group, by team and whatever `by` names besides. `timed`: with the times too, of the same reading
        of the runs."""
        r = t.runs
        times = _TIMES if timed else ()
        timed_sums = dict(zip(USED, self._sums.sums(span), strict=True))
        cut = [
            *(func.sum(r.c.units * part) for part in self._sums.clipped(span)),
            *(timed_sums[name] for name in times),
        ]
        found: dict[tuple[tuple[str, ...], str, str, int], list[int]] = {}
        for kind, sums in await self._sums.by_kind(cluster, span, only, cut, [*UNITS, *times]):
            key = (tuple(kind[name] for name in by), kind["group"], kind["team"], kind["per_node"])
            mine = found.setdefault(key, [0] * len(sums))
            for i, value in enumerate(sums):
                mine[i] += value
        return [
            Cell(names, group, GroupUsage(team, per_node, *sums[:_HELD]), Times(*sums[_HELD:]))
            for (names, group, team, per_node), sums in found.items()
        ]

    async def groups(self, cluster: str) -> list[str]:
        """Those that runs held nodes of; "" of nodes that no file knew."""
        k = t.run_kinds
        async with self._database.read() as db:
            found = await db.execute(select(k.c.group).distinct().where(k.c.cluster == cluster).order_by(k.c.group))
            return [str(group) for (group,) in found]

    async def runs(
        self,
        cluster: str,
        span: ReportSpan,
        only: Only = _ALL,
        *,
        first: Order = "latest",
        behind: Behind | None = None,
        after: RunPlace | None = None,
        limit: int = 100,
    ) -> list[RunRow]:
        """The runs behind a figure; `behind`: those that a cause of loss is made of, the dearest first. `first`: "lossy" are only
        those that lost or idled, the dearest first, "waited" those that began in the span, the longest wait first. `after`: the
        place of the last one that was read before."""
        r = t.runs
        order = _order(r.c, first, behind)
        only = listed(only, first, span.start) if behind is None else only
        query = _rows().where(fits(cluster, only), r.c.cluster == cluster, await self._sums.within(cluster, span))
        if behind is not None:
            query = _narrowed(query, cluster, behind)
        if after is not None:
            query = query.where(_later(order, after))
        query = query.order_by(*(value.desc() if falls else value for value, falls in order))
        async with self._database.read() as db:
            return [RunRow(*row) for row in await db.execute(query.limit(limit))]

    async def runs_of_job(self, cluster: str, job: int) -> list[RunRow]:
        """Every run of a job, the first first."""
        r = t.runs
        query = _rows().where(r.c.cluster == cluster, r.c.job == job).order_by(r.c.start, r.c.group)
        async with self._database.read() as db:
            return [RunRow(*row) for row in await db.execute(query)]


def listed(only: Only, first: Order, start: int) -> Only:
    """Those of them that a list in that order shows, from `start` on: what is above it is of no others."""
    return replace(only, lossy=first == "lossy", since=start if first == "waited" else None)


def _narrowed(query: Select[Any], cluster: str, behind: Behind) -> Select[Any]:
    r, s = t.runs, t.job_saves
    named = ("PREEMPTED", "NODE_FAIL")
    if behind.lost:
        query = query.where(r.c.lost_s > 0)
    if behind.idle:
        query = query.where(r.c.idle_s > 0, or_(r.c.end == 0, r.c.lost_s < r.c.end - r.c.start))
    if behind.saved:
        told = select(s.c.job).where(s.c.cluster == cluster, s.c.saves >= 2, s.c.up_s > 0)
        query = query.where(r.c.job.in_(told), r.c.start >= behind.since)
    if behind.state != "*":
        query = query.where(r.c.state == behind.state if behind.state else r.c.state.not_in(named))
    if behind.nodes:
        query = query.where(r.c.nodes == behind.nodes)
    if behind.runs is not None:
        query = query.where(_one_of(behind.runs))
    if behind.but:
        query = query.where(~_one_of(behind.but))
    return query


def _one_of(runs: Iterable[tuple[int, int]]) -> ColumnElement[bool]:
    """Whether a run is one of these, by job and start. They may be thousands: as pairs, or as parameters, a database takes
    only so many, so each is one number, and part of the question."""
    both = t.runs.c.job * literal_column(str(_A_JOB)) + t.runs.c.start
    numbers = [job * _A_JOB + start for job, start in runs]
    return both.in_(bindparam("runs", numbers, type_=BigInteger, unique=True, expanding=True, literal_execute=True))


def _rows() -> Select[Any]:
    """RunRow's columns, from either table."""
    k, r = t.run_kinds, t.runs
    columns = [k.c[name] if name in KIND and name != "group" else r.c[name] for name in RunRow.__dataclass_fields__]
    return select(*columns).select_from(r.join(k, r.c.kind == k.c.id))
