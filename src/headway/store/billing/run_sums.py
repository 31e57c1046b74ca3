"""Sums over runs, one kind of run after the other: from the daily sums where they exist, otherwise from each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, and_, case, delete, func, insert, literal, or_, select

from headway.domain.billing import DAY_S
from headway.store.billing.daily_rollups import RUNS, DailyRollups, between
from headway.store.billing.ledger_progress import LedgerProgress
from headway.store.billing.runs import KIND, OPEN
from headway.store.db import billing_schema as t
from headway.store.db.transactions import Database, StorePart

NONE = "-"  # of a name: what has none, such as runs without GPUs


@dataclass(frozen=True, slots=True)
class ReportSpan:
    """A stretch that is asked about, and the moment up to which what still runs counts."""

    start: int
    end: int
    now: int


@dataclass(frozen=True, slots=True)
class Only:
    """What of it; "" = all. `teams`: () = none, None = every one. `gpus`: from and to so many, both included. `lossy`: only what
    lost or idled. `since`: only runs that began from then on."""

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
        """Whether it takes all runs of a kind, or none."""
        return self.gpus is None and not self.lossy and self.since is None


class RunSums(StorePart):
    def __init__(self, database: Database, rollups: DailyRollups, progress: LedgerProgress) -> None:
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
        """The sums over the runs of each kind that has any: kinds are few, and of one the index is read in its order. `whole`
        names the same sums (of SUMS) for runs that lie in the span as a whole: nearly all, and quicker to add up, or known
        already of days whose sums are kept."""
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
                for low, top in between(days, span.start, last)
            ]
            parts += [(list(cut), r, before), (list(cut), r, after)]
            if days:
                parts.append(([func.sum(d.c[name]) for name in whole], d, d.c.day.in_(days)))
            for sums_of, of, which in parts:
                query = (
                    select(*(k.c[name] for name in KIND), *sums_of)
                    .select_from(k.join(of, of.c.kind == k.c.id))
                    .where(fits(cluster, only), which)
                    .group_by(k.c.id)
                )
                for row in await db.execute(query):
                    values = [int(value or 0) for value in row[count:]]
                    found.append((dict(zip(KIND, row[:count], strict=True)), values))
        return found

    async def save_day(self, cluster: str, day: int) -> None:
        """Keeps the sums of the runs that began in the day and have ended, until one of them changes."""
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
        """The runs that were there at some time of the span; one that ended as it began, in that second. `looked_up`: they are
        found by other means than by when they began, which SQLite, having no statistics, takes for the better way even to a
        hundredth of them."""
        r = t.runs
        start = r.c.start + 0 if looked_up else r.c.start
        return and_(
            start >= await self.earliest_start(cluster, span.start),
            start < min(span.end, span.now + 1),
            or_(r.c.end > span.start, r.c.start >= span.start, r.c.end == 0),
        )

    async def earliest_start(self, cluster: str, moment: int) -> int:
        """Start of the first run that may have been there at that moment. No run is longer than the longest: so runs are read
        from that much earlier on, not from the beginning of time."""
        earliest = moment - (await self._progress.get(cluster)).longest_s
        return min(earliest, await self._first_running(cluster) or earliest)

    async def _first_running(self, cluster: str) -> int:
        """Start of the longest run that still runs; 0 where nothing does."""
        r = t.runs
        async with self._database.read() as db:
            found = await db.execute(select(func.min(r.c.start)).where(r.c.cluster == cluster, OPEN))
            return int(found.scalar() or 0)

    def least(self, *values: Any) -> ColumnElement[int]:
        return func.min(*values) if self._database.dialect == "sqlite" else func.least(*values)

    def most(self, *values: Any) -> ColumnElement[int]:
        return func.max(*values) if self._database.dialect == "sqlite" else func.greatest(*values)

    def _end(self, span: ReportSpan) -> ColumnElement[int]:
        r = t.runs
        return case((r.c.end == 0, self.most(literal(span.now), r.c.start)), else_=r.c.end)

    def clipped(self, span: ReportSpan) -> tuple[ColumnElement[int], ColumnElement[int], ColumnElement[int]]:
        """Seconds of a run that lie in the span: all, those that were lost (at its end), and those it idled (of the rest, in
        proportion). Whole numbers, the last two never more than the first; as `billing.goodput.within` has them."""
        r = t.runs
        ended = self._end(span)
        low, high = literal(span.start), literal(max(span.start, min(span.end, span.now)))
        during = self.most(0, self.least(ended, high) - self.most(r.c.start, low))
        kept = self.most(r.c.start, ended - r.c.lost_s)
        lost = self.most(0, self.least(ended, high) - self.most(kept, low))
        lost = case((r.c.lost_s > 0, lost), else_=literal(0))
        alive = self.most(1, kept - r.c.start)
        idled = [
            whole(self.least(r.c.idle_s, alive) * self.most(0, self.least(kept, until) - r.c.start), alive)
            for until in (high, low)
        ]
        idle = case((r.c.idle_s > 0, idled[0] - idled[1]), else_=literal(0))
        return during, lost, idle

    def whole_run(self) -> tuple[ColumnElement[int], ColumnElement[int], ColumnElement[int]]:
        """As `clipped`, of runs that lie in the span as a whole."""
        r = t.runs
        during = r.c.end - r.c.start
        lost, idle = self.least(r.c.lost_s, during), self.least(r.c.idle_s, during - self.least(r.c.lost_s, during))
        return during, _where(r.c.lost_s, lost), _where(r.c.idle_s, idle)

    def _whole_sums(self) -> dict[str, ColumnElement[Any]]:
        """As `_sums`, of runs that lie in the span as a whole, and units as `_whole` has their seconds."""
        r = t.runs
        during, lost, idle = self.whole_run()
        waited = r.c.start - r.c.eligible  # the store keeps no eligible time after the start
        gpu_s, cpu_s = r.c.gpus * during, r.c.cpus * during
        seen = _where(r.c.measured_s, r.c.gpus * self.least(r.c.measured_s, during))
        read = r.c.cpu_measured_s  # never more than it held, but for a run that ended sooner than known
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
        """In the order of USED."""
        r = t.runs
        during, lost, idle = self.clipped(span)
        waited = case((r.c.start >= span.start, self.most(0, r.c.start - r.c.eligible)), else_=literal(0))
        life = self.most(1, self._end(span) - r.c.start)
        measured = self.least(r.c.measured_s, life)
        blind = during - whole(measured * during, life)
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


def fits(cluster: str, only: Only) -> ColumnElement[bool]:
    """Of runs with their kinds."""
    k = t.run_kinds
    wanted = [k.c.cluster == cluster]
    if only.teams is not None:
        wanted.append(k.c.team.in_(only.teams))
    names = {name: getattr(only, name) for name in ("user", "partition", "gpu_type", "group")}
    wanted += [k.c[name] == ("" if value == NONE else value) for name, value in names.items() if value]
    if only.gpus is not None:
        wanted.append(_size(cluster).between(*only.gpus))
    if only.lossy:
        wanted.append(t.runs.c.units * (t.runs.c.lost_s + t.runs.c.idle_s) > 0)
    if only.since is not None:
        wanted += [t.runs.c.start >= only.since, t.runs.c.first == 1]
    return and_(*wanted)


def _size(cluster: str) -> ColumnElement[int]:
    """GPUs of a run in all groups that it holds nodes of. Each run's parts are only looked up where there is one of several."""
    r, part, other = t.runs, t.runs.alias(), t.runs.alias()
    several = select(other.c.job).where(other.c.cluster == cluster, other.c.first == 0).exists()
    parts = (part.c.cluster == cluster, part.c.job == r.c.job, part.c.start == r.c.start)
    return case((several, select(func.sum(part.c.gpus)).where(*parts).correlate(r).scalar_subquery()), else_=r.c.gpus)


def _where(known: ColumnElement[int], amount: ColumnElement[Any]) -> ColumnElement[int]:
    """The amount of the few runs that have any: it is not even reckoned for the others."""
    return case((known > 0, amount), else_=literal(0))


def _part(number: ColumnElement[Any], during: ColumnElement[int], life: ColumnElement[int]) -> ColumnElement[int]:
    """number * during / life, without a product that a whole number of 64 bits can't hold: joules of a large run that lasts for
    weeks, times its seconds, are more."""
    return whole(number, life) * during + whole(number % life * during, life)


def whole(number: ColumnElement[Any], by: Any) -> ColumnElement[int]:
    """Divided without its fraction: what both databases do with whole numbers, unless SQLAlchemy makes them other ones."""
    return number.op("/", precedence=8, return_type=BigInteger())(by)  # binds as a division does
