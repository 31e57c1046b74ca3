"""What reports ask of a million runs: sums that the database makes, a kind of runs after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
)

from headway.domain.ledger import Use
from headway.store import ledger_schema as t
from headway.store.runs import KIND, OPEN, RunStore

Order = Literal["latest", "lossy", "waited"]
RunPlace = tuple[int | str, ...]  # of a run in a list: what the list goes by
BY = ("team", "user", "partition", "gpu_type", "group")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch that is asked about, and the moment up to which what still runs counts."""

    start: int
    end: int
    now: int


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
NONE = "-"  # of a name: what has none, such as runs without GPUs


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


@dataclass(frozen=True, slots=True)
class Total:
    """One row of a usage report. `by` has the values asked for; the rest are sums over the stretch. `unmeasured_gpu_s` and
    `unmeasured_cpu_s`: held while nobody measured the GPUs' power, or read the counters of the nodes.
    `waited_s` counts each run once, in the stretch it began in; `waited_gpu_s` each GPU of it."""

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


_TIMES = [
    list(Total.__dataclass_fields__).index(name) - 1 for name in Times.__dataclass_fields__
]  # places among the sums
_HELD = 3  # sums of a Use


@dataclass(frozen=True, slots=True)
class Cell:
    """What runs held of groups: as `Use`, by anything. `times`: none of any, unless they were asked for."""

    by: tuple[str, ...]
    group: str
    use: Use
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


class UsageStore(RunStore):
    # --- reports

    async def usage(self, cluster: str, span: Span, by: Sequence[str], only: Only = Only()) -> list[Total]:
        """Sums for each value of `by` (names of BY), the most GPU-seconds first."""
        found: dict[tuple[str, ...], list[int]] = {}
        for kind, sums in await self._by_kind(cluster, span, only, self._sums(span), self._whole_sums()):
            mine = found.setdefault(tuple(kind[name] for name in by), [0] * len(sums))
            for i, value in enumerate(sums):
                mine[i] += value
        totals = [Total(name, *sums) for name, sums in found.items()]
        return sorted(totals, key=lambda one: (-one.gpu_s, -one.cpu_s, one.by))

    async def held(
        self, cluster: str, span: Span, by: Sequence[str] = (), only: Only = Only(), *, timed: bool = False
    ) -> list[Cell]:
        """What was held of each group, by team and whatever `by` names besides. `timed`: with the times too, of the same reading
        of the runs."""
        r = t.runs
        times = _TIMES if timed else []
        cut, whole = (
            [*(func.sum(r.c.units * part) for part in parts), *(sums[i] for i in times)]
            for parts, sums in (
                (self._clipped(span), self._sums(span)),
                (self._whole(), self._whole_sums()),
            )
        )
        found: dict[tuple[tuple[str, ...], str, str, int], list[int]] = {}
        for kind, sums in await self._by_kind(cluster, span, only, cut, whole):
            key = (tuple(kind[name] for name in by), kind["group"], kind["team"], kind["per_node"])
            mine = found.setdefault(key, [0] * len(sums))
            for i, value in enumerate(sums):
                mine[i] += value
        return [
            Cell(names, group, Use(team, per_node, *sums[:_HELD]), Times(*sums[_HELD:]))
            for (names, group, team, per_node), sums in found.items()
        ]

    async def groups_of_runs(self, cluster: str) -> list[str]:
        """Those that runs held nodes of; "" of nodes that no file knew."""
        k = t.run_kinds
        async with self._read() as db:
            found = await db.execute(select(k.c.group).distinct().where(k.c.cluster == cluster).order_by(k.c.group))
            return [str(group) for (group,) in found]

    async def _by_kind(
        self,
        cluster: str,
        span: Span,
        only: Only,
        cut: Sequence[ColumnElement[Any]],
        whole: Sequence[ColumnElement[Any]],
    ) -> list[tuple[Mapping[str, Any], list[int]]]:
        """The sums over the runs of each kind that has any: kinds are few, and of one the index is read in its order. `whole`
        are the same sums for runs that lie in the span as a whole: nearly all, and quicker to add up."""
        k, r = t.run_kinds, t.runs
        high, last, count = min(span.end, span.now), min(span.end, span.now + 1), len(KIND)
        early, late = await self._earliest(cluster, span.start), await self._earliest(cluster, high)
        inside = and_(r.c.start >= span.start, r.c.start < last, r.c.end > 0, r.c.end <= high)
        before = and_(r.c.start >= early, r.c.start < span.start, or_(r.c.end > span.start, r.c.end == 0))
        after = and_(r.c.start >= max(span.start, late), r.c.start < last, or_(r.c.end > high, r.c.end == 0))
        found: list[tuple[Mapping[str, Any], list[int]]] = []
        async with self._read() as db:
            for sums, which in ((whole, inside), (cut, before), (cut, after)):
                query = (
                    select(*(k.c[name] for name in KIND), *sums)
                    .select_from(k.join(r, r.c.kind == k.c.id))
                    .where(fits(cluster, only), which)
                    .group_by(k.c.id)
                )
                for row in await db.execute(query):
                    values = [int(value or 0) for value in row[count:]]
                    found.append((dict(zip(KIND, row[:count], strict=True)), values))
        return found

    async def runs(
        self,
        cluster: str,
        span: Span,
        only: Only = Only(),
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
        query = _rows().where(fits(cluster, only), r.c.cluster == cluster, await self._within(cluster, span))
        if behind is not None:
            query = _narrowed(query, cluster, behind)
        if after is not None:
            query = query.where(_later(order, after))
        query = query.order_by(*(value.desc() if falls else value for value, falls in order))
        async with self._read() as db:
            return [RunRow(*row) for row in await db.execute(query.limit(limit))]

    async def runs_of(self, cluster: str, job: int) -> list[RunRow]:
        """Every run of a job, the first first."""
        r = t.runs
        query = _rows().where(r.c.cluster == cluster, r.c.job == job).order_by(r.c.start, r.c.group)
        async with self._read() as db:
            return [RunRow(*row) for row in await db.execute(query)]

    # --- pieces of queries

    async def _within(self, cluster: str, span: Span, *, looked_up: bool = False) -> ColumnElement[bool]:
        """The runs that were there at some time of the span; one that ended as it began, in that second. `looked_up`: they are
        found by other means than by when they began, which SQLite, having no statistics, takes for the better way even to a
        hundredth of them."""
        r = t.runs
        start = r.c.start + 0 if looked_up else r.c.start
        return and_(
            start >= await self._earliest(cluster, span.start),
            start < min(span.end, span.now + 1),
            or_(r.c.end > span.start, r.c.start >= span.start, r.c.end == 0),
        )

    async def _earliest(self, cluster: str, moment: int) -> int:
        """Start of the first run that may have been there at that moment. No run is longer than the longest: so runs are read
        from that much earlier on, not from the beginning of time."""
        earliest = moment - (await self.mark(cluster)).longest_s
        return min(earliest, await self._first_open(cluster) or earliest)

    async def _first_open(self, cluster: str) -> int:
        """Start of the longest run that still runs; 0 where nothing does."""
        r = t.runs
        async with self._read() as db:
            found = await db.execute(select(func.min(r.c.start)).where(r.c.cluster == cluster, OPEN))
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
        proportion). Whole numbers, the last two never more than the first; as `ledger.goodput.within` has them."""
        r = t.runs
        ended = self._end(span)
        low, high = literal(span.start), literal(max(span.start, min(span.end, span.now)))
        during = self._most(0, self._least(ended, high) - self._most(r.c.start, low))
        kept = self._most(r.c.start, ended - r.c.lost_s)
        lost = self._most(0, self._least(ended, high) - self._most(kept, low))
        lost = case((r.c.lost_s > 0, lost), else_=literal(0))
        alive = self._most(1, kept - r.c.start)
        idled = [
            whole(self._least(r.c.idle_s, alive) * self._most(0, self._least(kept, until) - r.c.start), alive)
            for until in (high, low)
        ]
        idle = case((r.c.idle_s > 0, idled[0] - idled[1]), else_=literal(0))
        return during, lost, idle

    def _whole(self) -> tuple[ColumnElement[int], ColumnElement[int], ColumnElement[int]]:
        """As `_clipped`, of runs that lie in the span as a whole."""
        r = t.runs
        during = r.c.end - r.c.start
        lost, idle = self._least(r.c.lost_s, during), self._least(r.c.idle_s, during - self._least(r.c.lost_s, during))
        return during, _where(r.c.lost_s, lost), _where(r.c.idle_s, idle)

    def _whole_sums(self) -> list[ColumnElement[Any]]:
        """As `_sums`, of runs that lie in the span as a whole."""
        r = t.runs
        during, lost, idle = self._whole()
        waited = r.c.start - r.c.eligible  # the store keeps no eligible time after the start
        gpu_s, cpu_s = r.c.gpus * during, r.c.cpus * during
        seen = _where(r.c.measured_s, r.c.gpus * self._least(r.c.measured_s, during))
        return [
            func.sum(r.c.first),
            func.sum(gpu_s),
            func.sum(cpu_s),
            func.sum(r.c.gpus * lost),
            func.sum(r.c.gpus * idle),
            func.sum(waited * r.c.first),
            func.sum(r.c.gpus * waited),
            func.sum(r.c.energy_j),
            func.sum(gpu_s) - func.sum(seen),
            func.sum(cpu_s)
            - func.sum(r.c.cpu_measured_s),  # which is never more, but for a run that ended sooner than known
        ]

    def _sums(self, span: Span) -> list[ColumnElement[Any]]:
        """In the order of Total."""
        r = t.runs
        during, lost, idle = self._clipped(span)
        waited = case((r.c.start >= span.start, self._most(0, r.c.start - r.c.eligible)), else_=literal(0))
        life = self._most(1, self._end(span) - r.c.start)
        measured = self._least(r.c.measured_s, life)
        blind = during - whole(measured * during, life)
        read = _part(self._least(r.c.cpu_measured_s, r.c.cpus * life), during, life)
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


def listed(only: Only, first: Order, start: int) -> Only:
    """Those of them that a list in that order shows, from `start` on: what is above it is of no others."""
    return replace(only, lossy=first == "lossy", since=start if first == "waited" else None)


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
        wanted.append(_order(t.runs.c, "lossy", None)[0][0] > 0)
    if only.since is not None:
        wanted += [t.runs.c.start >= only.since, t.runs.c.first == 1]
    return and_(*wanted)


def _size(cluster: str) -> ColumnElement[int]:
    """GPUs of a run in all groups that it holds nodes of. Each run's parts are only looked up where there is one of several."""
    r, part, other = t.runs, t.runs.alias(), t.runs.alias()
    several = select(other.c.job).where(other.c.cluster == cluster, other.c.first == 0).exists()
    parts = (part.c.cluster == cluster, part.c.job == r.c.job, part.c.start == r.c.start)
    return case((several, select(func.sum(part.c.gpus)).where(*parts).correlate(r).scalar_subquery()), else_=r.c.gpus)


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
