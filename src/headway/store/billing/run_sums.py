"""Sums over runs, one kind of run after the other: from the daily sums where they exist, otherwise from each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, and_, case, delete, func, insert, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.billing.ledger import DAY_S
from headway.store.billing.daily_rollups import RUNS, DailyRollupStore, days_between
from headway.store.billing.ledger_progress import LedgerProgress
from headway.store.billing.runs import KIND, OPEN
from headway.store.db import billing_schema as t
from headway.store.db.transactions import Database, StorePart

NONE = "-"  # as a filter value: runs with an empty value, such as runs without GPUs


@dataclass(frozen=True, slots=True)
class ReportSpan:
    """The time span of a report. Runs that have not ended count until `now`."""

    start: int
    end: int
    now: int


@dataclass(frozen=True, slots=True)
class Only:
    """A filter for runs; "" means no restriction.

    `teams`: () = none, None = all. `gpus`: smallest and largest number of GPUs, both included. `lossy`: only runs that
    lost work or were idle. `since`: only runs that began at or after this time."""

    teams: tuple[str, ...] | None = None
    user: str = ""
    partition: str = ""
    gpu_type: str = ""
    group: str = ""
    gpus: tuple[int, int] | None = None
    lossy: bool = False
    since: int | None = None

    @property
    def of_kinds(self) -> bool:
        """Returns whether the filter selects either all or none of the runs of each kind."""
        return self.gpus is None and not self.lossy and self.since is None


class RunSumStore(StorePart):
    """Computes sums over runs, for reports."""

    def __init__(self, database: Database, rollups: DailyRollupStore, progress: LedgerProgress) -> None:
        super().__init__(database)
        self._rollups = rollups
        self._progress = progress

    async def by_kind(
        self,
        cluster: str,
        span: ReportSpan,
        only: Only,
        cut: Sequence[ColumnElement[Any]],
        whole: Sequence[str],
    ) -> list[tuple[Mapping[str, Any], list[int]]]:
        """Returns sums over the runs of each kind that has any. Kinds are few, and the index is read in order for
        each.

        `cut` are the sums for runs that are partly in the span. `integer_quotient` names the same sums (from USED and UNITS) for
        runs that are entirely in the span: these are nearly all runs, faster to add up, and already stored for days
        with valid daily sums."""
        k, r, d = t.run_kinds, t.runs, t.run_days
        high, last, count = min(span.end, span.now), min(span.end, span.now + 1), len(KIND)
        early, late = await self.earliest_start(cluster, span.start), await self.earliest_start(cluster, high)
        before = and_(r.c.start >= early, r.c.start < span.start, or_(r.c.end > span.start, r.c.end == 0))
        after = and_(r.c.start >= max(span.start, late), r.c.start < last, or_(r.c.end > high, r.c.end == 0))
        sums = self._whole_sums()
        every = [sums[name] for name in whole]
        found: list[tuple[Mapping[str, Any], list[int]]] = []
        async with self._database.read() as db:
            days = await self._rollups.kept_days(db, cluster, RUNS, span.start, last, high) if only.of_kinds else []
            parts = [
                (every, r, and_(r.c.start >= low, r.c.start < top, r.c.end > 0, r.c.end <= high))
                for low, top in days_between(days, span.start, last)
            ]
            parts += [(list(cut), r, before), (list(cut), r, after)]
            if days:
                parts.append(([func.sum(d.c[name]) for name in whole], d, d.c.day.in_(days)))
            for sums_of, of, which in parts:
                query = (
                    select(*(k.c[name] for name in KIND), *sums_of)
                    .select_from(k.join(of, of.c.kind == k.c.id))
                    .where(matches_filter(cluster, only), which)
                    .group_by(k.c.id)
                )
                for row in await db.execute(query):
                    values = [round(value or 0) for value in row[count:]]
                    found.append((dict(zip(KIND, row[:count], strict=True)), values))
        return found

    async def kept_days(self, db: AsyncConnection, cluster: str, start: int, end: int, ended_by: int) -> list[int]:
        """Returns the days between `start` and `end` whose sums of runs are valid; all that are in them had ended by
        `ended_by`."""
        return await self._rollups.kept_days(db, cluster, RUNS, start, end, ended_by)

    async def save_day(self, cluster: str, day: int) -> None:
        """Stores the sums over the runs that began in the day and have ended; they are valid until one of these runs
        changes."""
        k, r, d = t.run_kinds, t.runs, t.run_days
        kinds = select(k.c.id).where(k.c.cluster == cluster)
        sums = self._whole_sums()
        mine = (k.c.cluster == cluster, r.c.start >= day, r.c.start < day + DAY_S, r.c.end > 0)
        query = (
            select(r.c.kind, literal(day), *sums.values(), func.max(r.c.end))
            .select_from(k.join(r, r.c.kind == k.c.id))
            .where(*mine)
            .group_by(r.c.kind)
        )
        async with self._database.write() as db:
            await db.execute(delete(d).where(d.c.day == day, d.c.kind.in_(kinds)))
            await db.execute(insert(d).from_select(["kind", "day", *sums, "last_end"], query))
            last = select(func.max(d.c.last_end)).where(d.c.day == day, d.c.kind.in_(kinds))
            await self._rollups.mark_day(db, cluster, RUNS, day, last_end=int((await db.execute(last)).scalar() or 0))

    async def within(self, cluster: str, span: ReportSpan, *, looked_up: bool = False) -> ColumnElement[bool]:
        """Returns the condition for runs that overlap the span; a run that ended in the second it began counts in that
        second.

        `looked_up`: the rows are found by another index than that of the start time. SQLite has no statistics and
        would otherwise prefer the start time even if the other index leaves a hundredth of the rows."""
        r = t.runs
        start = r.c.start + 0 if looked_up else r.c.start
        return and_(
            start >= await self.earliest_start(cluster, span.start),
            start < min(span.end, span.now + 1),
            or_(r.c.end > span.start, r.c.start >= span.start, r.c.end == 0),
        )

    async def earliest_start(self, cluster: str, moment: int) -> int:
        """Returns the earliest start of a run that may still have been running at `moment`. No run is longer than the
        longest known one, so reports do not have to read older runs."""
        earliest = moment - (await self._progress.get(cluster)).longest_s
        return min(earliest, await self._first_running(cluster) or earliest)

    async def _first_running(self, cluster: str) -> int:
        """Returns the start of the run that has been running longest, 0 if none is running."""
        r = t.runs
        async with self._database.read() as db:
            found = await db.execute(select(func.min(r.c.start)).where(r.c.cluster == cluster, OPEN))
            return int(found.scalar() or 0)

    def least(self, *values: Any) -> ColumnElement[int]:
        """Returns the SQL expression for the smallest value."""
        return func.min(*values) if self._database.dialect == "sqlite" else func.least(*values)

    def most(self, *values: Any) -> ColumnElement[int]:
        """Returns the SQL expression for the largest value."""
        return func.max(*values) if self._database.dialect == "sqlite" else func.greatest(*values)

    def ran(self, now: int) -> ColumnElement[int]:
        """Returns the seconds of a run, until `now` if it has not ended."""
        return self._end(now) - t.runs.c.start

    def _end(self, now: int) -> ColumnElement[int]:
        r = t.runs
        return case((r.c.end == 0, self.most(literal(now), r.c.start)), else_=r.c.end)

    def clipped(self, span: ReportSpan) -> tuple[ColumnElement[int], ColumnElement[int], ColumnElement[int]]:
        """Returns the seconds of a run in the span: (all, lost, idle). Lost time lies at the end of the run; idle time
        is spread evenly over the rest. All are integers, and the last two are never more than the first. Same formula
        as `billing.goodput.within`."""
        r = t.runs
        ended = self._end(span.now)
        low, high = literal(span.start), literal(max(span.start, min(span.end, span.now)))
        during = self.most(0, self.least(ended, high) - self.most(r.c.start, low))
        kept = self.most(r.c.start, ended - r.c.lost_s)
        lost = self.most(0, self.least(ended, high) - self.most(kept, low))
        lost = case((r.c.lost_s > 0, lost), else_=literal(0))
        alive = self.most(1, kept - r.c.start)
        idled = [
            integer_quotient(self.least(r.c.idle_s, alive) * self.most(0, self.least(kept, until) - r.c.start), alive)
            for until in (high, low)
        ]
        idle = case((r.c.idle_s > 0, idled[0] - idled[1]), else_=literal(0))
        return during, lost, idle

    def whole_run(self) -> tuple[ColumnElement[int], ColumnElement[int], ColumnElement[int]]:
        """Returns the same as `clipped`, for runs that lie entirely in the span."""
        r = t.runs
        during = r.c.end - r.c.start
        lost, idle = self.least(r.c.lost_s, during), self.least(r.c.idle_s, during - self.least(r.c.lost_s, during))
        return during, _where(r.c.lost_s, lost), _where(r.c.idle_s, idle)

    def _whole_sums(self) -> dict[str, ColumnElement[Any]]:
        """Returns the same sums as `sums`, and the unit-seconds, for runs that lie entirely in the span."""
        r = t.runs
        during, lost, idle = self.whole_run()
        waited = r.c.start - r.c.eligible  # the store never keeps an eligible time after the start
        gpu_s, cpu_s = r.c.gpus * during, r.c.cpus * during
        seen = _where(r.c.measured_s, r.c.gpus * self.least(r.c.measured_s, during))
        read = (
            r.c.cpu_measured_s
        )  # at most the allocated CPU-seconds, except for a run that ended earlier than was known
        return {
            "runs": func.sum(r.c.first),
            "gpu_s": func.sum(gpu_s),
            "cpu_s": func.sum(cpu_s),
            "lost_gpu_s": func.sum(r.c.gpus * lost),
            "idle_gpu_s": func.sum(r.c.gpus * idle),
            "waited_s": func.sum(waited * r.c.first),
            "waited_gpu_s": func.sum(r.c.gpus * waited),
            "energy_j": func.sum(r.c.energy_j),
            "unmeasured_gpu_s": func.sum(gpu_s) - func.sum(seen),
            "unmeasured_cpu_s": func.sum(cpu_s) - func.sum(read),
            "unit_s": func.sum(r.c.units * during),
            "lost_unit_s": func.sum(r.c.units * lost),
            "idle_unit_s": func.sum(r.c.units * idle),
        }

    def sums(self, span: ReportSpan) -> list[ColumnElement[Any]]:
        """Returns the sums of a usage report, in the order of USED."""
        r = t.runs
        during, lost, idle = self.clipped(span)
        waited = case((r.c.start >= span.start, self.most(0, r.c.start - r.c.eligible)), else_=literal(0))
        life = self.most(1, self._end(span.now) - r.c.start)
        measured = self.least(r.c.measured_s, life)
        blind = during - integer_quotient(measured * during, life)
        read = _part(self.least(r.c.cpu_measured_s, r.c.cpus * life), during, life)
        return [
            func.sum(r.c.first),
            func.sum(r.c.gpus * during),
            func.sum(r.c.cpus * during),
            func.sum(r.c.gpus * lost),
            func.sum(r.c.gpus * idle),
            func.sum(waited * r.c.first),
            func.sum(r.c.gpus * waited),
            func.sum(_part(r.c.energy_j, during, life)),
            func.sum(r.c.gpus * blind),
            func.sum(r.c.cpus * during - read),
        ]


def matches_filter(cluster: str, only: Only) -> ColumnElement[bool]:
    """Returns the condition that selects the runs (joined with their kinds) that match the filter."""
    k = t.run_kinds
    conditions = [k.c.cluster == cluster]
    if only.teams is not None:
        conditions.append(k.c.team.in_(only.teams))
    names = {name: getattr(only, name) for name in ("user", "partition", "gpu_type", "group")}
    conditions += [k.c[name] == ("" if value == NONE else value) for name, value in names.items() if value]
    if only.gpus is not None:
        conditions.append(_size(cluster).between(*only.gpus))
    if only.lossy:
        conditions.append(t.runs.c.units * (t.runs.c.lost_s + t.runs.c.idle_s) > 0)
    if only.since is not None:
        conditions += [t.runs.c.start >= only.since, t.runs.c.first == 1]
    return and_(*conditions)


def _size(cluster: str) -> ColumnElement[int]:
    """Returns the GPUs of a run in all groups whose nodes were allocated to it. The rows of a run are only added up if
    the cluster has any run in several groups."""
    r, part, other = t.runs, t.runs.alias(), t.runs.alias()
    several = select(other.c.job).where(other.c.cluster == cluster, other.c.first == 0).exists()
    parts = (part.c.cluster == cluster, part.c.job == r.c.job, part.c.start == r.c.start)
    return case((several, select(func.sum(part.c.gpus)).where(*parts).correlate(r).scalar_subquery()), else_=r.c.gpus)


def _where(known: ColumnElement[int], amount: ColumnElement[Any]) -> ColumnElement[int]:
    """Returns the amount where `known` > 0, else 0. Few runs have any, and the amount is not computed for the
    others."""
    return case((known > 0, amount), else_=literal(0))


def _part(number: ColumnElement[Any], during: ColumnElement[int], life: ColumnElement[int]) -> ColumnElement[int]:
    """Returns number * during / life without the full product, which may exceed 64 bits: the joules of a large run
    over weeks times its seconds do."""
    return integer_quotient(number, life) * during + integer_quotient(number % life * during, life)


def integer_quotient(number: ColumnElement[Any], by: Any) -> ColumnElement[int]:
    """Returns the integer quotient. Both databases divide integers this way, but SQLAlchemy would convert them
    first."""
    return number.op("/", precedence=8, return_type=BigInteger())(by)  # same precedence as division
