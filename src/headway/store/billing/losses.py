"""Sums of lost and idle GPU time over the runs of a period, and the few runs with the largest losses. The database
computes the sums, so that the server never loads all runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Float, Select, and_, case, cast, func, literal, literal_column, select

from headway.store.billing.run_sums import Only, ReportSpan, RunSumStore, matches_filter
from headway.store.db import billing_schema as t
from headway.store.db import cluster_schema as others
from headway.store.db.transactions import Database, StorePart

# Written like the condition of the index of lost runs, so that the index is used.
LOST = t.runs.c.lost_s > literal_column("0")
NOTEBOOK = others.jobs.c.kind == literal_column("'notebook'")  # likewise for the index of notebooks
NODE_FAIL = "NODE_FAIL"
_MANY = 500  # jobs per query
EARLY_S = 600.0  # Headway may record a job's submission this many seconds later than accounting


@dataclass(frozen=True, slots=True)
class CutShort:
    """How runs ended whose work had to be repeated: "PREEMPTED", "NODE_FAIL" with the nodes of the run, or ""
    (requeued)."""

    state: str = ""
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class Amount:
    """Lost or idle time of the runs in one group whose nodes have `per_node` units."""

    group: str
    per_node: int
    gpu_s: int
    unit_s: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The lost or idle time of one run."""

    job: int
    start: int
    group: str
    per_node: int
    gpu_s: int
    unit_s: int

    @property
    def run(self) -> tuple[int, int, str]:
        """Returns the key of the run's row: job, start, group."""
        return self.job, self.start, self.group


@dataclass(frozen=True, slots=True)
class Blamed:
    """A run that lost work when an incident requeued its job: fault `what` on `node`."""

    job: int
    start: int
    group: str
    end: int
    units: int
    per_node: int
    gpus: float
    lost_s: int
    how: CutShort
    what: str
    node: str

    @property
    def run(self) -> tuple[int, int, str]:
        """Returns the key of the run's row: job, start, group."""
        return self.job, self.start, self.group


@dataclass(frozen=True, slots=True)
class Saved:
    """A run of a job that reported its checkpoints. `saves`, `stalled_s` and `up_s` are totals over all runs of the
    job."""

    job: int
    start: int
    end: int
    group: str
    units: int
    per_node: int
    gpus: float
    node_count: int
    saves: int
    stalled_s: float
    up_s: float


class LossReports(StorePart):
    """Reports on lost and idle time."""

    def __init__(self, database: Database, sums: RunSumStore) -> None:
        super().__init__(database)
        self._sums = sums

    async def totals(self, cluster: str, span: ReportSpan, only: Only) -> list[tuple[CutShort, Amount]]:
        """Returns the lost time, by how the runs ended."""
        k, r = t.run_kinds, t.runs
        _, lost, _ = self._sums.clipped(span)
        state, _ = _how()
        within = await self._sums.within(cluster, span)
        # Only NODE_FAIL needs the node names; grouping the other states without them is faster.
        ways = (((state,), r.c.state != NODE_FAIL), ((r.c.state, r.c.nodes), r.c.state == NODE_FAIL))
        found = []
        async with self._database.read() as db:
            for how, which in ways:
                query = (
                    select(k.c.group, k.c.per_node, func.sum(r.c.gpus * lost), func.sum(r.c.units * lost), *how)
                    .select_from(k.join(r, r.c.kind == k.c.id))
                    .where(matches_filter(cluster, only), LOST, which, within)
                    .group_by(k.c.group, k.c.per_node, *how)
                )
                for group, per_node, gpu_s, unit_s, *words in await db.execute(query):
                    found.append((CutShort(*words), Amount(group, per_node, int(gpu_s), int(unit_s))))
        return found

    async def largest_losses(
        self, cluster: str, span: ReportSpan, only: Only, hows: Collection[CutShort], limit: int
    ) -> list[tuple[CutShort, Piece]]:
        """Returns, for each of `hows`, the `limit` runs of one group that lost most."""
        r = t.runs
        _, lost, _ = self._sums.clipped(span)
        ended, _ = _how()
        found = []
        for how in hows:
            if not how.nodes:
                mine = [LOST, ended == how.state]
                found += [(how, one) for one in await self._largest(cluster, span, only, lost, limit, mine)]
        if nodes := [how.nodes for how in hows if how.nodes]:
            failed = [LOST, r.c.state == NODE_FAIL, r.c.nodes.in_(nodes)]
            query = self._pieces(cluster, only, lost).where(*failed, await self._sums.within(cluster, span))
            place = func.row_number().over(partition_by=r.c.nodes, order_by=self._costliest(lost))
            ranked = query.add_columns(r.c.nodes, place.label("place")).subquery()
            async with self._database.read() as db:
                for *piece, names, _ in await db.execute(select(ranked).where(ranked.c.place <= limit)):
                    found.append((CutShort(NODE_FAIL, names), Piece(*piece)))
        return found

    async def most_idle(self, cluster: str, span: ReportSpan, only: Only, limit: int) -> list[Piece]:
        """Returns the runs of one group that were idle most, including notebooks."""
        r = t.runs
        _, _, idle = self._sums.clipped(span)
        _, _, all_of_it = self._sums.whole_run()
        inside = and_(r.c.start >= span.start, r.c.end > 0, r.c.end <= min(span.end, span.now))
        # For runs that lie entirely in the span, which is nearly all of them, the simpler formula is faster.
        return await self._largest(cluster, span, only, case((inside, all_of_it), else_=idle), limit, [r.c.idle_s > 0])

    async def _largest(
        self,
        cluster: str,
        span: ReportSpan,
        only: Only,
        seconds: ColumnElement[int],
        limit: int,
        which: Sequence[ColumnElement[bool]],
    ) -> list[Piece]:
        query = self._pieces(cluster, only, seconds).where(*which, await self._sums.within(cluster, span))
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(self._costliest(seconds)).limit(limit))
            return [Piece(*row) for row in rows]

    def _pieces(self, cluster: str, only: Only, seconds: ColumnElement[int]) -> Select[Any]:
        """Returns the query for the columns of `Piece`."""
        k, r = t.run_kinds, t.runs
        sums = ((r.c.gpus * seconds).label("gpu_s"), (r.c.units * seconds).label("unit_s"))
        columns = (r.c.job, r.c.start, k.c.group, k.c.per_node, *sums)
        return select(*columns).select_from(k.join(r, r.c.kind == k.c.id)).where(matches_filter(cluster, only))

    def _costliest(self, seconds: ColumnElement[int]) -> ColumnElement[Any]:
        return (cast(t.runs.c.units * seconds, Float) / t.run_kinds.c.per_node).desc()

    async def idle_notebooks(self, cluster: str, span: ReportSpan, only: Only) -> list[Piece]:
        """Returns the runs of notebooks that were idle. A notebook is any job that was submitted as one, however long
        ago."""
        j, r = others.jobs, t.runs
        _, _, idle = self._sums.clipped(span)
        async with self._database.read() as db:
            query = select(j.c.job_id, func.min(j.c.at)).where(j.c.cluster == cluster, NOTEBOOK, j.c.at < span.end)
            since = {int(job): float(at) for job, at in await db.execute(query.group_by(j.c.job_id))}
        query = self._pieces(cluster, only, idle).add_columns(r.c.submit).where(await self._sums.within(cluster, span))
        rows = await self._of_jobs(query.where(r.c.idle_s > 0), cluster, list(since))
        return [Piece(*row[:-1]) for row in rows if since[row.job] <= row.submit + EARLY_S]

    async def lost_to_incidents(self, cluster: str, span: ReportSpan, only: Only, apart_s: float) -> list[Blamed]:
        """Returns the runs in the span that lost work and whose job was requeued by an incident within `apart_s`
        seconds of the run's end. If there are several incidents, the nearest one counts."""
        k, r, i, m = t.run_kinds, t.runs, others.incidents, others.incident_jobs
        incidents_by_job: dict[int, list[tuple[float, str, str]]] = {}
        async with self._database.read() as db:
            query = select(m.c.job, m.c.requeued_at, i.c.what, i.c.node).join(m, m.c.incident == i.c.number)
            mine = (i.c.cluster == cluster, m.c.requeued_at >= span.start - apart_s)
            for job, at, what, node in await db.execute(query.where(*mine)):
                incidents_by_job.setdefault(int(job), []).append((at, what, node))
        state, nodes = _how()
        columns = (r.c.job, r.c.start, k.c.group, r.c.end, r.c.units, k.c.per_node, r.c.gpus, r.c.lost_s)
        runs = (
            select(*columns, state, nodes)
            .select_from(r.join(k, r.c.kind == k.c.id))
            .where(matches_filter(cluster, only), LOST)
        )
        found = []
        for row in await self._of_jobs(
            runs.where(await self._sums.within(cluster, span)), cluster, list(incidents_by_job)
        ):
            apart, what, node = min((abs(at - row.end), what, node) for at, what, node in incidents_by_job[row.job])
            if apart <= apart_s:
                found.append(Blamed(*(*row[:8], CutShort(*row[8:]), what, node)))
        return found

    async def _of_jobs(self, query: Select[Any], cluster: str, jobs: Sequence[int]) -> list[Any]:
        r, found = t.runs, []
        async with self._database.read() as db:
            for at in range(0, len(jobs), _MANY):
                mine = (r.c.cluster == cluster, self._database.is_one_of(r.c.job, jobs[at : at + _MANY]))
                found += (await db.execute(query.where(*mine))).all()
        return found

    async def with_checkpoints(
        self, cluster: str, span: ReportSpan, only: Only, fewest: int, since: int = 0
    ) -> AsyncIterator[Saved]:
        """Yields the runs of jobs that reported at least `fewest` checkpoints, sorted by job. `since`: only runs that
        began at or after this time, as in `Behind`."""
        k, r, s = t.run_kinds, t.runs, t.job_saves
        columns = (r.c.job, r.c.start, r.c.end, k.c.group, r.c.units, k.c.per_node, r.c.gpus, r.c.node_count)
        query = (
            select(*columns, s.c.saves, s.c.stalled_s, s.c.up_s)
            .select_from(s.join(r, r.c.job == s.c.job).join(k, r.c.kind == k.c.id))
            .where(
                s.c.cluster == cluster, r.c.cluster == cluster, s.c.at >= span.start, s.c.saves >= fewest, s.c.up_s > 0
            )
            .where(
                matches_filter(cluster, only),
                await self._sums.within(cluster, span, looked_up=True),
                r.c.start >= since,
            )
            .order_by(s.c.job, r.c.start)
        )
        async with self._database.read() as db:
            async for row in await db.stream(query):
                yield Saved(*row)


def _how() -> tuple[ColumnElement[str], ColumnElement[str]]:
    r = t.runs
    state = case((r.c.state.in_(("PREEMPTED", NODE_FAIL)), r.c.state), else_=literal(""))
    return state, case((r.c.state == NODE_FAIL, r.c.nodes), else_=literal(""))
