"""Sums over node time, made by the database: what was allocated in each hour, and how long jobs waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    String,
    and_,
    case,
    cast,
    column,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    values,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.store.billing.daily_rollups import HOURS, DailyRollupStore
from headway.store.billing.ledger_progress import LedgerProgress
from headway.store.billing.run_sums import ReportSpan, RunSumStore, integer_quotient
from headway.store.billing.runs import OPEN
from headway.store.db import billing_schema as t
from headway.store.db.transactions import Database, StorePart

_LONGEST_WAIT_S = 3600 * 24 * 365  # longer waits are counted as this long
_PLACES = 10_000  # more than the number of intervals (hours) in a month
_PARTS = 1000  # node time spans per query
Seconds = Sequence[int]  # one value for each half hour of a day
Moments = dict[tuple[str, str], dict[int, tuple[int, int]]]
NodePart = tuple[str, int, int]  # node, start, end


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """A run had `units` of the node's `per_node` units from `start` until `end`, both within the requested
    time span."""

    node: str
    units: int
    per_node: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Touched:
    """Time spans in which something on a node was allocated, summed over nodes. They are grouped by the intervals between
    marks in which they begin and end (-1: before the first mark; the number of intervals: after the last mark)."""

    began_in: int
    ended_in: int
    count: int
    began: int  # sum of the beginnings, counted from the first mark; `ended` likewise
    ended: int


class CapacityReports(StorePart):
    """Sums over allocated GPUs, busy nodes and queue waits."""

    def __init__(
        self, database: Database, rollups: DailyRollupStore, progress: LedgerProgress, sums: RunSumStore
    ) -> None:
        super().__init__(database)
        self._rollups = rollups
        self._progress = progress
        self._sums = sums

    async def allocations_on(self, cluster: str, parts: Sequence[NodePart], now: int) -> list[NodeAllocation]:
        """Returns what was allocated to runs on nodes within the time spans `parts`, one row per run and span."""
        n = t.run_nodes
        longest = (await self._progress.get(cluster)).longest_s
        still = await self._sums._first_running(cluster)  # runs that have not ended began at this time or later
        found: list[NodeAllocation] = []
        async with self._database.read() as db:
            for at in range(0, len(parts), _PARTS):
                rows = values(column("node", String), column("low", BigInteger), column("high", BigInteger))
                spans = rows.data(list(parts[at : at + _PARTS])).cte("spans")
                ended = case((n.c.end == 0, self._sums.most(n.c.start, now)), else_=n.c.end)
                low, high = self._sums.most(n.c.start, spans.c.low), self._sums.least(ended, spans.c.high)
                query = (
                    select(n.c.node, n.c.units, n.c.per_node, low, high)
                    .select_from(spans.join(n, n.c.node == spans.c.node))
                    .where(n.c.cluster == cluster, n.c.start < spans.c.high, low < high)
                    .where(
                        n.c.start
                        >= (self._sums.least(spans.c.low - longest, still) if still else spans.c.low - longest)
                    )
                )
                found += [NodeAllocation(*row) for row in await db.execute(query)]
        return found

    async def busy_stretches(self, cluster: str, nodes: Sequence[str], span: ReportSpan, marks: range) -> list[Touched]:
        """Returns when nodes were at least partly allocated, with marks as in `Touched`.

        Spans of one node do not overlap: each is the time that a run adds to the runs that began before it on that
        node. The database needs one pass, sorted by node and time."""
        both, _, query = await self._stretches(cluster, span, marks, nodes)
        async with self._database.read() as db:
            return [_touched_of(*row) for row in await db.execute(query.group_by(both))]

    async def busy_stretches_by_node(self, cluster: str, span: ReportSpan, marks: range) -> list[tuple[str, Touched]]:
        """Returns the same as `busy_stretches` for each node separately; use it for short time spans."""
        both, node, query = await self._stretches(cluster, span, marks)
        async with self._database.read() as db:
            rows = await db.execute(query.add_columns(node).group_by(both, node))
            return [(name, _touched_of(*sums)) for *sums, name in rows]

    async def _stretches(
        self, cluster: str, span: ReportSpan, marks: range, nodes: Sequence[str] | None = None
    ) -> tuple[ColumnElement[int], ColumnElement[str], Any]:
        n = t.run_nodes
        low, first, last = await self._sums.earliest_start(cluster, span.start), marks[0], marks[-1]
        until = min(span.end, span.now)
        ended = case((n.c.end == 0, literal(until)), else_=self._sums.least(n.c.end, until))
        before = func.max(ended).over(partition_by=n.c.node, order_by=(n.c.start, n.c.job), rows=(None, -1))
        runs = (
            select(n.c.node, n.c.start, ended.label("ended"), before.label("before"))
            .where(n.c.cluster == cluster, n.c.units > 0)
            .where(n.c.node.in_(nodes) if nodes is not None else true())
            .where(n.c.start >= low, n.c.start < until, or_(n.c.end > first, n.c.end == 0))
            .subquery("runs")
        )
        began = case((runs.c.before > runs.c.start, runs.c.before), else_=runs.c.start)

        def place(moment: ColumnElement[int]) -> ColumnElement[int]:
            inside = integer_quotient(moment - first, marks.step)
            return case((moment < first, literal(-1)), (moment >= last, literal(len(marks) - 1)), else_=inside)

        both = (place(began) + 1) * _PLACES + place(runs.c.ended) + 1  # group by one number, which is faster
        query = select(both, func.count(), func.sum(began - first), func.sum(runs.c.ended - first)).where(
            or_(runs.c.before.is_(None), runs.c.ended > runs.c.before)
        )
        return both, runs.c.node, query

    async def begin_day(self, cluster: str, day: int) -> None:
        """Marks the day as being computed, so that `save_day` notices later changes to its runs."""
        async with self._database.write() as db:
            await self._rollups.mark_day(db, cluster, HOURS, day, -1)

    async def save_day(
        self, cluster: str, day: int, allocated: Mapping[tuple[str, str], Seconds], touched: Mapping[str, Seconds]
    ) -> bool:
        """Stores the values of a day's half hours: allocated GPU-seconds, by GPU type and group, and seconds in which each
        node was at least partly allocated. Returns False and stores nothing if runs have changed since `begin_day`."""
        h, n = t.allocated_gpu_days, t.touched_days
        async with self._database.write() as db:
            if not await self._rollups.finish_day(db, cluster, HOURS, day):
                return False
            for table in (h, n):
                await db.execute(delete(table).where(table.c.cluster == cluster, table.c.day == day))
            of_day = {"cluster": cluster, "day": day}
            rows = [
                {**of_day, "gpu_type": kind, "group": group, "seconds": list(seconds)}
                for (kind, group), seconds in allocated.items()
            ]
            nodes = [{**of_day, "node": node, "seconds": list(seconds)} for node, seconds in touched.items()]
            for table, found in ((h, rows), (n, nodes)):
                if found:
                    await db.execute(insert(table), found)
        return True

    async def saved_days(self, cluster: str, start: int, end: int) -> list[int]:
        """Returns the days from `start` to `end` whose half hours are stored."""
        async with self._database.read() as db:
            return await self._rollups.kept_days(db, cluster, HOURS, start, end)

    async def saved_gpu_seconds(self, cluster: str, days: Sequence[int]) -> list[tuple[str, str, int, Seconds]]:
        """Returns (GPU type, group, day, GPU-seconds of each half hour)."""
        h = t.allocated_gpu_days
        query = select(h.c.gpu_type, h.c.group, h.c.day, h.c.seconds).where(h.c.cluster == cluster, h.c.day.in_(days))
        async with self._database.read() as db:
            return [(kind, group, day, seconds) for kind, group, day, seconds in await db.execute(query)]

    async def saved_busy_seconds(self, cluster: str, days: Sequence[int]) -> AsyncIterator[tuple[str, int, Seconds]]:
        """Yields (node, day, busy seconds of each half hour)."""
        n = t.touched_days
        query = select(n.c.node, n.c.day, n.c.seconds).where(n.c.cluster == cluster, n.c.day.in_(days))
        async with self._database.read() as db:
            async for node, day, seconds in await db.stream(query):
                yield node, day, seconds

    async def gpu_changes(self, cluster: str, span: ReportSpan, marks: range, ends: bool) -> Moments:
        """Returns the GPUs of runs that began (or ended) in each interval between two marks, of all runs that had
        GPUs in the span.

        The result maps (GPU type, group) to {interval: (GPUs, sum of GPUs times unix time)}; interval -1 is before the
        first mark. Runs that have not ended count as ending now. There are few types and groups, so each is a separate
        query grouped by one number, which is what databases do fastest."""
        k, r = t.run_kinds, t.runs
        first, last = marks[0], marks[-1]
        if ends:  # a run that ended before the first mark had nothing after it
            moment, within = r.c.end, and_(r.c.end > first, r.c.end < last)
        else:
            low = await self._sums.earliest_start(cluster, span.start)
            within = and_(r.c.start >= low, r.c.start < last, or_(r.c.end > first, r.c.end == 0))
            moment = r.c.start
        place = case((moment < first, literal(-1)), else_=integer_quotient(moment - first, marks.step))
        found: Moments = {}
        async with self._database.read() as db:
            kinds = await db.execute(
                select(k.c.gpu_type, k.c.group).distinct().where(k.c.cluster == cluster, k.c.gpu_type != "")
            )
            for kind, group in kinds.all():
                query = (
                    select(place, func.sum(r.c.gpus), func.sum(r.c.gpus * moment))
                    .select_from(k.join(r, r.c.kind == k.c.id))
                    .where(k.c.cluster == cluster, k.c.gpu_type == kind, k.c.group == group, within)
                    .group_by(place)
                )
                for number, gpus, moments in await db.execute(query):
                    found.setdefault((kind, group), {})[int(number)] = (int(gpus), int(moments))
            if ends:
                await self._add_running(db, cluster, span, marks, found)
        return found

    async def _add_running(
        self,
        db: AsyncConnection,
        cluster: str,
        span: ReportSpan,
        marks: range,
        found: Moments,
    ) -> None:
        """Adds the runs that have not ended as if they ended now."""
        k, r = t.run_kinds, t.runs
        query = (
            select(k.c.gpu_type, k.c.group, func.sum(r.c.gpus))
            .select_from(k.join(r, r.c.kind == k.c.id))
            .where(k.c.cluster == cluster, r.c.cluster == cluster, OPEN, k.c.gpu_type != "", r.c.start < span.now)
            .group_by(k.c.gpu_type, k.c.group)
        )
        place = min(len(marks) - 1, (span.now - marks[0]) // marks.step) if span.now >= marks[0] else -1
        for kind, group, gpus in await db.execute(query):
            was = found.setdefault((kind, group), {}).get(place, (0, 0))
            found[kind, group][place] = (was[0] + int(gpus), was[1] + int(gpus) * span.now)

    async def queue_waits(self, cluster: str, span: ReportSpan) -> list[tuple[int, int, int]]:
        """Returns (GPUs, seconds waited, number of runs) for the runs that began in the span. Parts of one GPU count
        as 1. Waits of 10 minutes or more are rounded down to whole minutes."""
        k, r, other, its = t.run_kinds, t.runs, t.runs.alias(), t.run_kinds.alias()
        waited = self._sums.least(r.c.start - r.c.eligible, _LONGEST_WAIT_S)
        rounded = case((waited < 0, literal(0)), (waited < 600, waited), else_=waited - waited % 60)
        size = case((and_(r.c.gpus > 0, r.c.gpus < 1), literal(1)), else_=cast(r.c.gpus, BigInteger))
        both = size * (_LONGEST_WAIT_S + 1) + rounded  # group by one number, which is faster
        query = (
            select(both, func.count())
            .select_from(k.join(r, r.c.kind == k.c.id))
            .where(k.c.cluster == cluster, r.c.first == 1, r.c.start >= span.start, r.c.start < span.end)
            .group_by(both)
        )
        # Few runs are in several groups: they are first counted with the GPUs of their first group, then corrected to
        # all their GPUs.
        same = and_(r.c.job == other.c.job, r.c.start == other.c.start)
        more = (
            select(both, func.sum(other.c.gpus))
            .select_from(its.join(other, other.c.kind == its.c.id).join(r, same))
            .where(its.c.cluster == cluster, other.c.first == 0, r.c.cluster == cluster, r.c.first == 1)
            .where(other.c.start >= span.start, other.c.start < span.end)
            .group_by(r.c.job, r.c.start, both)
        )
        async with self._database.read() as db:
            found = Counter({int(number): int(count) for number, count in await db.execute(query)})
            for number, gpus in await db.execute(more):
                found[int(number)] -= 1
                found[int(number) + int(gpus) * (_LONGEST_WAIT_S + 1)] += 1
        return [(*divmod(number, _LONGEST_WAIT_S + 1), count) for number, count in found.items() if count]


def _touched_of(number: int, *sums: Any) -> Touched:
    """Returns a `Touched` from a result row. PostgreSQL returns sums as decimals, so they are converted to int."""
    return Touched(number // _PLACES - 1, number % _PLACES - 1, *(int(each) for each in sums))
