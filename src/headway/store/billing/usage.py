"""Sums for reports over up to a million runs, made by the database, one kind of run after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    case,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
)

from headway.domain.billing.ledger import DAY_S, GroupUsage
from headway.store.billing.run_sums import Only, ReportSpan, RunSumStore, matches_filter
from headway.store.billing.runs import KIND
from headway.store.db import billing_schema as t
from headway.store.db.billing_schema import UNITS, USED
from headway.store.db.transactions import Database, StorePart

Order = Literal["latest", "lossy", "waited", "longest", "largest", "gpu_time"]
BY_SIZE: tuple[Order, ...] = ("longest", "largest", "gpu_time")  # a run that has not ended counts until now
RunPlace = tuple[float | str, ...]  # the sort key of a run in a list
_ALL = Only()
BY = ("team", "user", "partition", "gpu_type", "group")


@dataclass(frozen=True, slots=True)
class Behind:
    """A filter for the runs that belong to one cause of loss.

    `lost`, `idle`, `saved`: runs that lost work, were idle, or whose jobs reported checkpoints. `state` and `nodes`:
    how the runs that lost work ended ("" = requeued, "*" = any state). `runs`: only these (job, start), if the runs
    are known individually; `but`: excludes these. `since`: for `saved`, only runs that began at or after this time;
    before that, another cluster had this name, and its jobs the same numbers."""

    lost: bool = False
    idle: bool = False
    saved: bool = False
    state: str = "*"
    nodes: str = ""
    runs: tuple[tuple[int, int], ...] | None = None
    but: tuple[tuple[int, int], ...] = ()
    since: int = 0


_A_JOB = 2**32  # larger than any time in unix seconds


@dataclass(frozen=True, slots=True)
class Total:
    """One row of a usage report. `by` has the values of the requested columns; the other fields are sums over the
    span.

    `unmeasured_gpu_s` and `unmeasured_cpu_s`: allocated time while the power of the GPUs was not measured, or the power
    counters of the nodes were not read. `waited_s` counts each run once, in the span in which it began; `waited_gpu_s`
    counts each of its GPUs."""

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
    """The times needed for goodput, as in `Total`. The times of two spans add up to those of both together."""

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


_TIMES = tuple(Times.__dataclass_fields__)  # names of the sums
_ALLOCATED = 3  # number of sums in a GroupUsage


@dataclass(frozen=True, slots=True)
class UsageSum:
    """What was allocated to runs in a node group, by any key. `times` is empty unless requested."""

    by: tuple[str, ...]
    group: str
    use: GroupUsage
    times: Times = Times()


@dataclass(frozen=True, slots=True)
class SpanUsage:
    """What was allocated to a team in a node group in the span that begins at `start`: unit-seconds, of which `per_node`
    are a node for a second, and GPU-seconds."""

    start: int
    team: str
    group: str
    per_node: int
    unit_s: int
    gpu_s: int


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as shown in lists; a run in several groups has one row per group."""

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
    gpus: float
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


def run_place(run: RunRow, first: Order, behind: Behind | None, now: int = 0) -> RunPlace:
    """Returns the position of a run in the list that `runs` returns for these arguments; `now` is that of its span."""
    return tuple(value for value, _ in _order(run, first, behind, (run.end or max(run.start, now)) - run.start))


def _order(of: Any, first: Order, behind: Behind | None, ran: Any) -> list[tuple[Any, bool]]:
    """Returns the sort order of a list of runs: (value, whether it is descending). `of` is a row or the table's
    columns, and `ran` the seconds that the run has run. No two rows have the same values."""
    if behind is not None:
        wasted = [of.lost_s] * behind.lost + [of.idle_s] * behind.idle
        dearest = [(of.units * sum(wasted[1:], wasted[0]), True)] if wasted else []
        return [*dearest, (of.start, True), (of.job, False), (of.group, False)]
    if first == "latest":
        return [(of.start, True), (of.job, True), (of.group, False)]
    if first == "lossy":
        amount = of.units * (of.lost_s + of.idle_s)
    elif first == "waited":
        amount = of.start - of.eligible
    else:  # GPUs may be fractions
        amount = {"longest": 1.0 * ran, "largest": 1.0 * of.gpus, "gpu_time": 1.0 * of.gpus * ran}[first]
    return [(amount, True), (of.job, False), (of.start, False), (of.group, False)]


def _later(order: list[tuple[Any, bool]], place: RunPlace) -> ColumnElement[bool]:
    """Returns the condition for rows that come after the position `place`."""
    found: ColumnElement[bool] = false()
    for (value, falls), mark in reversed(list(zip(order, place, strict=True))):
        found = or_(value < mark if falls else value > mark, and_(value == mark, found))
    return found


class UsageReports(StorePart):
    """Reports on usage."""

    def __init__(self, database: Database, sums: RunSumStore) -> None:
        super().__init__(database)
        self._sums = sums

    async def totals(self, cluster: str, span: ReportSpan, by: Sequence[str], only: Only = _ALL) -> list[Total]:
        """Returns sums for each value of the columns `by` (from BY), sorted by GPU-seconds, the largest first."""
        found: dict[tuple[str, ...], list[int]] = {}
        for kind, sums in await self._sums.by_kind(cluster, span, only, self._sums.sums(span), USED):
            mine = found.setdefault(tuple(kind[name] for name in by), [0] * len(sums))
            for i, value in enumerate(sums):
                mine[i] += value
        totals = [Total(name, *sums) for name, sums in found.items()]
        return sorted(totals, key=lambda total: (-total.gpu_s, -total.cpu_s, total.by))

    async def unit_seconds(
        self, cluster: str, span: ReportSpan, by: Sequence[str] = (), only: Only = _ALL, *, timed: bool = False
    ) -> list[UsageSum]:
        """Returns what was allocated in each group, by team and the columns in `by`. `timed`: also returns the times, from
        the same query."""
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
            UsageSum(names, group, GroupUsage(team, per_node, *sums[:_ALLOCATED]), Times(*sums[_ALLOCATED:]))
            for (names, group, team, per_node), sums in found.items()
        ]

    async def by_span(self, cluster: str, spans: Sequence[tuple[int, int]], now: int) -> list[SpanUsage]:
        """Returns what was allocated in each of these (start, end), by team and group: the same sums as those of
        `unit_seconds` for one span after the other. Each span begins where the one before it ends. Days with valid daily sums
        are not added up again: of their runs only those are read that went on after the day."""
        spans = [(start, min(end, now)) for start, end in spans if start < now]
        if not spans:
            return []
        k, r, d = t.run_kinds, t.runs, t.run_days
        names = (k.c.team, k.c.group, k.c.per_node)
        first, starts = spans[0][0], [low for low, _ in spans]
        earliest = await self._sums.earliest_start(cluster, first)
        found: dict[tuple[int, str, str, int], list[int]] = {}

        def add(key: Sequence[Any], unit_s: Any, gpu_s: Any) -> None:
            mine = found.setdefault((key[0], key[1], key[2], key[3]), [0, 0])
            mine[0] += unit_s or 0
            mine[1] += gpu_s or 0

        async with self._database.read() as db:
            valid = await self._sums.kept_days(db, cluster, first, spans[-1][1], now)
            kept = {low for low, high in spans if high - low == DAY_S} & set(valid)
            if kept:
                query = select(d.c.day, *names, func.sum(d.c.unit_s), func.sum(d.c.gpu_s))
                joined = query.select_from(k.join(d, d.c.kind == k.c.id)).where(
                    k.c.cluster == cluster, d.c.day.in_(kept)
                )
                for *key, unit_s, gpu_s in await db.execute(joined.group_by(d.c.day, *names)):
                    add(key, unit_s, gpu_s)
            runs_of = k.join(r, r.c.kind == k.c.id)
            ended = case((r.c.end == 0, literal(now, BigInteger)), else_=r.c.end)
            for low, high in spans:
                if low in kept:
                    continue
                during = self._sums.least(ended, literal(high, BigInteger)) - r.c.start
                query = select(
                    literal(low, BigInteger), *names, func.sum(r.c.units * during), func.sum(r.c.gpus * during)
                )
                mine = query.select_from(runs_of).where(k.c.cluster == cluster, r.c.start >= low, r.c.start < high)
                for *key, unit_s, gpu_s in await db.execute(mine.group_by(*names)):
                    add(key, unit_s, gpu_s)
            for low, high in [(earliest, first), *spans]:
                longer = select(*names, r.c.start, r.c.end, r.c.units, r.c.gpus).select_from(runs_of)
                goes_on = or_(r.c.end > high, r.c.end == 0)
                for *of, start, end, units, gpus in await db.execute(
                    longer.where(k.c.cluster == cluster, r.c.start >= low, r.c.start < high, goes_on)
                ):
                    if low in kept:  # its sum has the whole of runs that have ended, and nothing of others
                        during = high - end if end else high - start
                        add((low, *of), units * during, gpus * during)
                    for at in range(bisect_right(starts, start), len(spans)):
                        begin, stop = spans[at]
                        if begin >= (end or now):
                            break
                        add(
                            (begin, *of),
                            units * (min(end or now, stop) - begin),
                            gpus * (min(end or now, stop) - begin),
                        )
        return [SpanUsage(*key, round(unit_s), round(gpu_s)) for key, (unit_s, gpu_s) in found.items()]

    async def groups(self, cluster: str) -> list[str]:
        """Returns the groups whose nodes were allocated to runs; "" is for nodes that were in no cluster file."""
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
        """Returns the runs behind a figure.

        `behind`: the runs that belong to a cause of loss, the most expensive first. `first`: "lossy" lists only runs
        that lost work or were idle, the most expensive first; "waited" lists only runs that began in the span, the
        longest wait first; "longest", "largest" and "gpu_time" list all, by their time, GPUs or both. `after`: the position
        of the last run of the previous page."""
        r = t.runs
        order = _order(r.c, first, behind, self._sums.ran(span.now))
        only = list_filter(only, first, span.start) if behind is None else only
        query = _rows().where(
            matches_filter(cluster, only), r.c.cluster == cluster, await self._sums.within(cluster, span)
        )
        if behind is not None:
            query = self._narrowed(query, cluster, behind)
        if after is not None:
            query = query.where(_later(order, after))
        query = query.order_by(*(value.desc() if falls else value for value, falls in order))
        async with self._database.read() as db:
            return [RunRow(*row) for row in await db.execute(query.limit(limit))]

    async def runs_of_job(self, cluster: str, job: int) -> list[RunRow]:
        """Returns every run of a job, the oldest first."""
        return await self.runs_of_jobs(cluster, [job])

    async def runs_of_jobs(self, cluster: str, jobs: Collection[int]) -> list[RunRow]:
        """Returns every run of these jobs, those of each job from the oldest on."""
        r = t.runs
        query = _rows().where(r.c.cluster == cluster, self._database.is_one_of(r.c.job, jobs))
        query = query.order_by(r.c.job, r.c.start, r.c.group)
        async with self._database.read() as db:
            return [RunRow(*row) for row in await db.execute(query)]

    def _narrowed(self, query: Select[Any], cluster: str, behind: Behind) -> Select[Any]:
        r, s = t.runs, t.job_saves
        named = ("PREEMPTED", "NODE_FAIL")
        if behind.lost:
            query = query.where(r.c.lost_s > 0)
        if behind.idle:
            query = query.where(r.c.idle_s > 0, or_(r.c.end == 0, r.c.lost_s < r.c.end - r.c.start))
        if behind.saved:
            jobs = select(s.c.job).where(s.c.cluster == cluster, s.c.saves >= 2, s.c.up_s > 0)
            query = query.where(r.c.job.in_(jobs), r.c.start >= behind.since)
        if behind.state != "*":
            query = query.where(r.c.state == behind.state if behind.state else r.c.state.not_in(named))
        if behind.nodes:
            query = query.where(r.c.nodes == behind.nodes)
        if behind.runs is not None:
            query = query.where(self._one_of(behind.runs))
        if behind.but:
            query = query.where(~self._one_of(behind.but))
        return query

    def _one_of(self, runs: Iterable[tuple[int, int]]) -> ColumnElement[bool]:
        """Returns the condition that a run is one of these (job, start), each encoded as one number."""
        both = t.runs.c.job * literal_column(str(_A_JOB), BigInteger) + t.runs.c.start
        return self._database.is_one_of(both, [job * _A_JOB + start for job, start in runs])


def list_filter(only: Only, first: Order, start: int) -> Only:
    """Returns the filter for a list in that order, which narrows `only`; `start` is the beginning of the span."""
    return replace(only, lossy=first == "lossy", since=start if first == "waited" else None)


def _rows() -> Select[Any]:
    """Returns the query for the columns of `RunRow`."""
    k, r = t.run_kinds, t.runs
    columns = [k.c[name] if name in KIND and name != "group" else r.c[name] for name in RunRow.__dataclass_fields__]
    return select(*columns).select_from(r.join(k, r.c.kind == k.c.id))
