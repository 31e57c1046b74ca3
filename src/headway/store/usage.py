"""Runs of jobs, each exactly once, and what reports ask of a million of them: sums that the database makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Insert,
    Table,
    and_,
    case,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.hostlist import compress
from headway.domain.ledger import Held, Run, Use
from headway.store import schema as t
from headway.store.base import Base

BY = ("team", "user", "partition", "gpu_type", "group")
_MEASURED = frozenset({"lost_s", "measured_s", "idle_s", "energy_j", "saved_at"})  # by Headway, not by accounting
_KEY = ("cluster", "job", "start", "group")
_BATCH = 500
_OPEN = t.runs.c.end == literal_column("0")  # in words that the index of open runs has, too


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the ledger has come, in unix seconds."""

    collected_to: int = 0
    measured_to: int = 0
    swept_at: int = 0
    longest_s: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch that is asked about, and the moment up to which what still runs counts."""

    start: int
    end: int
    now: int


@dataclass(frozen=True, slots=True)
class Only:
    """What of it; "" = all. `teams`: () = none, None = every one."""

    teams: tuple[str, ...] | None = None
    user: str = ""
    partition: str = ""
    gpu_type: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Total:
    """One row of a usage report. `by` has the values asked for; the rest are sums over the stretch. `unmeasured_gpu_s` and
    `unmeasured_cpu_s`: held while nobody measured power. `waited_gpu_s` counts each run once, in the stretch it began in."""

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
class Cell:
    """What runs held of groups: as `Use`, by anything."""

    by: tuple[str, ...]
    group: str
    use: Use


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
    saved_at: float | None


class UsageStore(Base):
    # --- collecting

    async def mark(self, cluster: str) -> Mark:
        m = t.ledger_marks
        async with self._read() as db:
            row = (await db.execute(select(m).where(m.c.cluster == cluster))).first()
        return Mark(row.collected_to, row.measured_to, row.swept_at, row.longest_s, row.error) if row else Mark()

    async def set_mark(self, cluster: str, **values: Any) -> None:
        async with self._write() as db:
            await self._mark(db, cluster, values)

    async def put_runs(self, cluster: str, runs: Iterable[tuple[Run, Sequence[Held]]], **mark: int) -> None:
        """All of them and the new mark, or nothing. A run that is known (its job and start) takes what accounting says now;
        a job that runs is given back without its end until it has one. What Headway measured stays."""
        rows, nodes, longest = [], [], 0
        for run, held in runs:
            longest = max(longest, (run.end or run.start) - run.start)
            for number, part in enumerate(held):
                rows.append(_row(cluster, run, part, first=number == 0))
                nodes += [_node(cluster, run, part, node) for node in part.nodes]
        async with self._write() as db:
            for table, found, key in ((t.runs, rows, _KEY), (t.run_nodes, nodes, ("cluster", "node", "start", "job"))):
                for at in range(0, len(found), _BATCH):
                    await db.execute(upsert(db, table, key), found[at : at + _BATCH])
            known = (
                await db.execute(select(t.ledger_marks.c.longest_s).where(t.ledger_marks.c.cluster == cluster))
            ).scalar()
            await self._mark(db, cluster, {**mark, "longest_s": max(longest, known or 0)})

    async def forget_runs(self, cluster: str) -> None:
        """What accounting said is forgotten and read again from its beginning; what was measured, and money, stay. Rows are
        left where they are: accounting's own words come over them, and what it no longer has is kept."""
        await self.set_mark(cluster, collected_to=0, swept_at=0)

    async def measure(self, cluster: str, found: Iterable[tuple[int, int, int, int, int]], measured_to: int) -> None:
        """(job, at, seconds, idle seconds, joules) each: of the run that the job was in at that moment. With the mark, so that
        nothing is added twice."""
        r = t.runs
        async with self._write() as db:
            for job, at, seconds, idle_s, joules in found:
                here = (r.c.cluster == cluster, r.c.job == job, r.c.start <= at, r.c.first == 1)
                start = (await db.execute(select(func.max(r.c.start)).where(*here))).scalar()
                if start is None:
                    continue
                of_run = and_(r.c.cluster == cluster, r.c.job == job, r.c.start == start)
                added = {"measured_s": r.c.measured_s + seconds, "idle_s": r.c.idle_s + idle_s}
                await db.execute(update(r).where(of_run).values(**added))
                await db.execute(update(r).where(of_run, r.c.first == 1).values(energy_j=r.c.energy_j + joules))
            await self._mark(db, cluster, {"measured_to": measured_to})

    async def lose(self, cluster: str, job: int, start: int, lost_s: int, saved_at: float | None = None) -> None:
        r = t.runs
        values: dict[str, Any] = {"lost_s": lost_s} | ({} if saved_at is None else {"saved_at": saved_at})
        async with self._write() as db:
            await db.execute(
                update(r).where(r.c.cluster == cluster, r.c.job == job, r.c.start == start).values(**values)
            )

    async def _mark(self, db: AsyncConnection, cluster: str, values: Mapping[str, Any]) -> None:
        m = t.ledger_marks
        if not (await db.execute(update(m).where(m.c.cluster == cluster).values(**values))).rowcount:
            blank = {"collected_to": 0, "measured_to": 0, "swept_at": 0, "longest_s": 0, "error": ""}
            await db.execute(_insert(db, m).values(**{**blank, **values, "cluster": cluster}))

    # --- reports

    async def usage(self, cluster: str, span: Span, by: Sequence[str], only: Only = Only()) -> list[Total]:
        """Sums for each value of `by` (names of BY), the most GPU-seconds first."""
        sums = self._sums(span)
        names = [t.runs.c[name] for name in by]
        query = select(*names, *sums).where(await self._within(cluster, span, only)).group_by(*names)
        async with self._read() as db:
            rows = (await db.execute(query)).all()
        count = len(names)
        found = [Total(tuple(row[:count]), *(int(value or 0) for value in row[count:])) for row in rows]
        return sorted(found, key=lambda one: (-one.gpu_s, -one.cpu_s, one.by))

    async def held(self, cluster: str, span: Span, by: Sequence[str] = (), only: Only = Only()) -> list[Cell]:
        """What was held of each group, by team and whatever `by` names besides."""
        r = t.runs
        during, lost, idle = self._clipped(span)
        names = [r.c[name] for name in by]
        sums = [func.sum(r.c.units * part) for part in (during, lost, idle)]
        query = (
            select(r.c.team, r.c.group, r.c.per_node, *names, *sums)
            .where(await self._within(cluster, span, only))
            .group_by(r.c.team, r.c.group, r.c.per_node, *names)
        )
        async with self._read() as db:
            rows = (await db.execute(query)).all()
        count = 3 + len(names)
        return [
            Cell(tuple(row[3:count]), row[1], Use(row[0], row[2], *(int(value or 0) for value in row[count:])))
            for row in rows
        ]

    async def held_on(
        self, cluster: str, node: str, spans: Sequence[tuple[int, int]], now: int
    ) -> list[tuple[int, int, int]]:
        """(units, per_node, seconds) that runs held on a node within spans."""
        n = t.run_nodes
        if not spans:
            return []
        longest = (await self.mark(cluster)).longest_s
        low, high = spans[0][0] - longest, spans[-1][1]
        query = select(n.c.units, n.c.per_node, n.c.start, n.c.end).where(
            n.c.cluster == cluster,
            n.c.node == node,
            or_(and_(n.c.start >= low, n.c.start < high), and_(n.c.end == 0, n.c.start < high)),
        )
        async with self._read() as db:
            rows = (await db.execute(query)).all()
        return [
            (row.units, row.per_node, seconds)
            for row in rows
            for start, end in spans
            if (seconds := min(row.end or now, end) - max(row.start, start)) > 0
        ]

    async def moments(
        self, cluster: str, span: Span, marks: Sequence[int], ends: bool, only: Only = Only()
    ) -> dict[str, dict[int, tuple[int, int]]]:
        """GPU type -> the number of the stretch between two marks (-1: before) -> (GPUs, GPUs times moment) of the runs that
        began (or ended) there, of all that held something in the span. What still runs ends now."""
        r = t.runs
        moment = self._end(span) if ends else r.c.start
        step = max(1, (marks[-1] - marks[0]) // max(1, len(marks) - 1))
        place = case((moment < marks[0], literal(-1)), else_=_whole(moment - marks[0], step))
        query = (
            select(r.c.gpu_type, place.label("place"), func.sum(r.c.gpus), func.sum(r.c.gpus * moment))
            .where(await self._within(cluster, span, only), r.c.gpus > 0)
            .group_by(r.c.gpu_type, place)
        )
        async with self._read() as db:
            rows = (await db.execute(query)).all()
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for gpu_type, number, gpus, moments in rows:
            found.setdefault(gpu_type, {})[int(number)] = (int(gpus), int(moments))
        return found

    async def waits(self, cluster: str, span: Span, only: Only = Only()) -> list[tuple[int, int, int]]:
        """(GPUs, seconds waited, how many) of the runs that began in the span; long waits are rounded to whole minutes."""
        r = t.runs
        waited = r.c.start - r.c.eligible
        rounded = case((waited < 0, literal(0)), (waited < 600, waited), else_=waited - waited % 60)
        query = (
            select(r.c.gpus, rounded, func.count())
            .where(await self._within(cluster, span, only), r.c.first == 1, r.c.start >= span.start)
            .group_by(r.c.gpus, rounded)
        )
        async with self._read() as db:
            return [(int(gpus), int(seconds), int(count)) for gpus, seconds, count in await db.execute(query)]

    async def runs(
        self, cluster: str, span: Span, only: Only = Only(), *, lossy: bool = False, after: int = 0, limit: int = 100
    ) -> list[RunRow]:
        """The runs behind a figure, the latest first; `lossy`: only those that lost or idled, the dearest first."""
        r = t.runs
        columns = [r.c[name] for name in RunRow.__dataclass_fields__]
        query = select(*columns).where(await self._within(cluster, span, only))
        if lossy:
            waste = r.c.units * (r.c.lost_s + r.c.idle_s)
            query = query.where(waste > 0).order_by(waste.desc(), r.c.job)
        else:
            query = query.order_by(r.c.start.desc(), r.c.job.desc(), r.c.group)
        async with self._read() as db:
            rows = await db.execute(query.offset(after).limit(limit))
            return [RunRow(*row) for row in rows]

    async def runs_of(self, cluster: str, job: int) -> list[RunRow]:
        """Every run of a job, the first first."""
        r = t.runs
        columns = [r.c[name] for name in RunRow.__dataclass_fields__]
        query = select(*columns).where(r.c.cluster == cluster, r.c.job == job).order_by(r.c.start, r.c.group)
        async with self._read() as db:
            return [RunRow(*row) for row in await db.execute(query)]

    async def open_runs(self, cluster: str) -> list[tuple[int, int]]:
        """(job, start) of those that have no end yet."""
        r = t.runs
        query = select(r.c.job, r.c.start).where(r.c.cluster == cluster, _OPEN, r.c.first == 1)
        async with self._read() as db:
            return [(int(job), int(start)) for job, start in await db.execute(query)]

    # --- pieces of queries

    async def _within(self, cluster: str, span: Span, only: Only) -> ColumnElement[bool]:
        """The runs that were there at some time of the span. No run is longer than the longest: so the index is read from
        that much earlier on, and not from the beginning of time."""
        r = t.runs
        earliest = span.start - (await self.mark(cluster)).longest_s
        open_from = await self._first_open(cluster)
        low = min(earliest, open_from) if open_from else earliest
        wanted = [
            r.c.cluster == cluster,
            r.c.start >= low,
            r.c.start < min(span.end, span.now + 1),
            or_(r.c.end > span.start, r.c.end == 0),
        ]
        if only.teams is not None:
            wanted.append(r.c.team.in_(only.teams))
        names = ("user", "partition", "gpu_type", "group")
        wanted += [r.c[name] == value for name in names if (value := getattr(only, name))]
        return and_(*wanted)

    async def _first_open(self, cluster: str) -> int:
        """Start of the longest run that still runs; 0 where nothing does."""
        r = t.runs
        async with self._read() as db:
            found = await db.execute(select(func.min(r.c.start)).where(r.c.cluster == cluster, _OPEN))
            return int(found.scalar() or 0)

    def _least(self, *values: Any) -> ColumnElement[int]:
        return func.min(*values) if self._engine.dialect.name == "sqlite" else func.least(*values)

    def _most(self, *values: Any) -> ColumnElement[int]:
        return func.max(*values) if self._engine.dialect.name == "sqlite" else func.greatest(*values)

    def _end(self, span: Span) -> ColumnElement[int]:
        r = t.runs
        return case((r.c.end == 0, self._most(literal(span.now), r.c.start)), else_=r.c.end)

    def _clipped(self, span: Span) -> tuple[ColumnElement[int], ColumnElement[int], ColumnElement[int]]:
        """Seconds of a run that lie in the span: all, those that were lost (at its end), and those it idled (of the rest, in
        proportion). Whole numbers, the last two never more than the first."""
        r = t.runs
        ended = self._end(span)
        low, high = literal(span.start), literal(min(span.end, span.now))
        during = self._most(0, self._least(ended, high) - self._most(r.c.start, low))
        kept = self._most(r.c.start, ended - r.c.lost_s)
        lost = self._most(0, self._least(ended, high) - self._most(kept, low))
        lost = case((r.c.lost_s > 0, lost), else_=literal(0))
        alive = self._most(1, kept - r.c.start)
        part = _whole(self._least(r.c.idle_s, alive) * (during - lost), alive)
        idle = case((r.c.idle_s > 0, part), else_=literal(0))
        return during, lost, idle

    def _sums(self, span: Span) -> list[ColumnElement[Any]]:
        """In the order of Total."""
        r = t.runs
        during, lost, idle = self._clipped(span)
        began = and_(r.c.start >= span.start, r.c.first == 1)
        waited = case((began, self._most(0, r.c.start - r.c.eligible)), else_=literal(0))
        life = self._most(1, self._end(span) - r.c.start)
        measured = self._least(r.c.measured_s, life)
        blind = during - _whole(measured * during, life)
        return [
            func.sum(r.c.first),
            func.sum(r.c.gpus * during),
            func.sum(r.c.cpus * during),
            func.sum(r.c.gpus * lost),
            func.sum(r.c.gpus * idle),
            func.sum(waited),
            func.sum(r.c.gpus * waited),
            func.sum(_whole(r.c.energy_j * during, life)),
            func.sum(r.c.gpus * blind),
            func.sum(case((r.c.gpus == 0, r.c.cpus * blind), else_=literal(0))),
        ]


def _whole(number: ColumnElement[Any], by: Any) -> ColumnElement[int]:
    """Divided without its fraction: what both databases do with whole numbers, unless SQLAlchemy makes them other ones."""
    return number.op("/", return_type=BigInteger())(by)


def _row(cluster: str, run: Run, part: Held, *, first: bool) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "job": run.job,
        "start": run.start,
        "group": part.group,
        "first": int(first),
        "end": run.end,
        "submit": run.submit,
        "eligible": min(run.eligible or run.submit, run.start),
        "team": run.team,
        "user": run.user,
        "partition": run.partition,
        "qos": run.qos,
        "state": run.state,
        "nodes": compress(part.nodes),
        "node_count": len(part.nodes),
        "gpu_type": part.gpu_type,
        "gpus": part.gpus,
        "cpus": part.cpus,
        "units": part.units,
        "per_node": part.per_node,
        "memory_mib": run.memory_mib,
        "time_limit_s": run.time_limit_s,
        "used_cpu_s": run.used_cpu_s,
        "used_memory_mib": run.used_memory_mib,
        "array_job": run.array_job,
    }


def _node(cluster: str, run: Run, part: Held, node: str) -> dict[str, Any]:
    """A job's nodes hold the same of it, as far as accounting says."""
    return {
        "cluster": cluster,
        "node": node,
        "start": run.start,
        "job": run.job,
        "end": run.end,
        "units": part.units,
        "per_node": part.per_node * len(part.nodes),
    }


def _insert(db: AsyncConnection, table: Table) -> Any:
    return (postgresql if db.dialect.name == "postgresql" else sqlite).insert(table)


def upsert(db: AsyncConnection, table: Table, key: Sequence[str]) -> Insert:
    made = _insert(db, table)
    fresh = {
        column.name: made.excluded[column.name]
        for column in table.columns
        if column.name not in key and column.name not in _MEASURED
    }
    found: Insert = made.on_conflict_do_update(index_elements=list(key), set_=fresh)
    return found
