"""What took what of the runs of a stretch: sums over every run that lost work or idled, and the few that did so most. No list of
runs is held: sums are the database's, and of runs only the dearest are read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Float, and_, case, cast, func, literal, literal_column, select

from headway.store import ledger_schema as t
from headway.store import schema as others
from headway.store.usage import Only, Span, UsageStore, fits

LOST = t.runs.c.lost_s > literal_column("0")  # in words that the index of lost runs has, too
EARLY_S = 600.0  # so much later than accounting says may Headway have noted that a job was submitted


@dataclass(frozen=True, slots=True)
class CutShort:
    """How runs ended whose work was done again: "PREEMPTED", "NODE_FAIL" with the nodes that they were on, or "" (requeued)."""

    state: str = ""
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class Amount:
    """Of runs in one group whose nodes have `per_node` units."""

    group: str
    per_node: int
    gpu_s: int
    unit_s: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What one run lost or idled."""

    job: int
    start: int
    group: str
    per_node: int
    unit_s: int

    @property
    def run(self) -> tuple[int, int, str]:
        return self.job, self.start, self.group


@dataclass(frozen=True, slots=True)
class Blamed:
    """A run that an incident cut short, as far as its job was sent back to the queue when the run ended."""

    job: int
    start: int
    end: int
    group: str
    units: int
    per_node: int
    gpus: int
    lost_s: int
    how: CutShort
    what: str
    node: str
    apart_s: float  # between the run's end and the incident's word

    @property
    def run(self) -> tuple[int, int, str]:
        return self.job, self.start, self.group


@dataclass(frozen=True, slots=True)
class Saved:
    """A run of a job that says how long it stood still for its checkpoints: in all its runs together."""

    job: int
    start: int
    end: int
    group: str
    units: int
    per_node: int
    gpus: int
    node_count: int
    saves: int
    stalled_s: float
    up_s: float


class LossStore(UsageStore):
    async def lost(self, cluster: str, span: Span, only: Only) -> list[tuple[CutShort, Amount]]:
        """What was lost, by how the runs ended."""
        k, r = t.run_kinds, t.runs
        _, lost, _ = self._clipped(span)
        state, nodes = _how()
        query = (
            select(state, nodes, k.c.group, k.c.per_node, func.sum(r.c.gpus * lost), func.sum(r.c.units * lost))
            .select_from(k.join(r, r.c.kind == k.c.id))
            .where(fits(cluster, only), LOST, await self._within(cluster, span))
            .group_by(state, nodes, k.c.group, k.c.per_node)
        )
        async with self._read() as db:
            return [
                (CutShort(ended, names), Amount(group, per_node, int(gpu_s), int(unit_s)))
                for ended, names, group, per_node, gpu_s, unit_s in await db.execute(query)
                if gpu_s or unit_s
            ]

    async def lost_most(self, cluster: str, span: Span, only: Only, how: CutShort, limit: int) -> list[Piece]:
        """The runs of one group that lost most in that way."""
        _, lost, _ = self._clipped(span)
        state, nodes = _how()
        return await self._most_of(cluster, span, only, lost, limit, [LOST, state == how.state, nodes == how.nodes])

    async def idled_most(self, cluster: str, span: Span, only: Only, limit: int) -> list[Piece]:
        """The runs of one group that idled most, notebooks among them."""
        _, _, idle = self._clipped(span)
        return await self._most_of(cluster, span, only, idle, limit, [t.runs.c.idle_s > 0])

    async def _most_of(
        self,
        cluster: str,
        span: Span,
        only: Only,
        seconds: ColumnElement[int],
        limit: int,
        which: Sequence[ColumnElement[bool]],
    ) -> list[Piece]:
        k, r = t.run_kinds, t.runs
        unit_s = r.c.units * seconds
        query = (
            select(r.c.job, r.c.start, k.c.group, k.c.per_node, unit_s)
            .select_from(k.join(r, r.c.kind == k.c.id))
            .where(fits(cluster, only), await self._within(cluster, span), *which)
            .order_by((cast(unit_s, Float) / k.c.per_node).desc())
            .limit(limit)
        )
        async with self._read() as db:
            return [Piece(*row) for row in await db.execute(query) if row[4]]

    async def notebooks_idle(self, cluster: str, span: Span, only: Only) -> list[tuple[Piece, int]]:
        """Runs of notebooks that idled, and the GPU-seconds of it. A notebook is what was submitted as one, however long ago."""
        k, r, j = t.run_kinds, t.runs, others.jobs
        _, _, idle = self._clipped(span)
        query = (
            select(r.c.job, r.c.start, k.c.group, k.c.per_node, r.c.units * idle, r.c.gpus * idle)
            .distinct()
            .select_from(j.join(r, and_(r.c.cluster == j.c.cluster, r.c.job == j.c.job_id)).join(k, r.c.kind == k.c.id))
            .where(j.c.cluster == cluster, j.c.kind == "notebook", j.c.at <= r.c.submit + EARLY_S, r.c.idle_s > 0)
            .where(fits(cluster, only), await self._within(cluster, span))
        )
        async with self._read() as db:
            return [(Piece(*row[:5]), int(row[5])) for row in await db.execute(query)]

    async def blamed(self, cluster: str, span: Span, only: Only, apart_s: float) -> list[Blamed]:
        """Runs of the stretch that lost work and whose job an incident sent back to the queue within `apart_s` of their end."""
        k, r, i, m = t.run_kinds, t.runs, others.incidents, others.incident_jobs
        state, nodes = _how()
        columns = (r.c.job, r.c.start, r.c.end, k.c.group, r.c.units, k.c.per_node, r.c.gpus, r.c.lost_s)
        query = (
            select(*columns, state.label("ended"), nodes.label("failed"), i.c.what, i.c.node, m.c.requeued_at)
            .select_from(
                i.join(m, m.c.incident == i.c.number)
                .join(r, and_(r.c.cluster == i.c.cluster, r.c.job == m.c.job))
                .join(k, r.c.kind == k.c.id)
            )
            .where(i.c.cluster == cluster, m.c.requeued_at >= span.start - apart_s)
            .where(fits(cluster, only), LOST, await self._within(cluster, span))
            .where(m.c.requeued_at.between(r.c.end - apart_s, r.c.end + apart_s))
        )
        async with self._read() as db:
            return [
                Blamed(
                    row.job, row.start, row.end, row.group, row.units, row.per_node, row.gpus, row.lost_s,
                    CutShort(row.ended, row.failed), row.what, row.node, abs(row.requeued_at - row.end),
                )
                for row in await db.execute(query)
            ]  # fmt: skip

    async def saved(self, cluster: str, span: Span, only: Only, fewest: int) -> AsyncIterator[Saved]:
        """The runs of jobs that told of `fewest` checkpoints or more, a job's one after the other."""
        k, r, s = t.run_kinds, t.runs, t.job_saves
        columns = (r.c.job, r.c.start, r.c.end, k.c.group, r.c.units, k.c.per_node, r.c.gpus, r.c.node_count)
        query = (
            select(*columns, s.c.saves, s.c.stalled_s, s.c.up_s)
            .select_from(s.join(r, and_(r.c.cluster == s.c.cluster, r.c.job == s.c.job)).join(k, r.c.kind == k.c.id))
            .where(s.c.cluster == cluster, s.c.at >= span.start, s.c.saves >= fewest, s.c.up_s > 0)
            .where(fits(cluster, only), await self._within(cluster, span))
            .order_by(s.c.job, r.c.start)
        )
        async with self._read() as db:
            async for row in await db.stream(query):
                yield Saved(*row)


def _how() -> tuple[ColumnElement[str], ColumnElement[str]]:
    r = t.runs
    state = case((r.c.state.in_(("PREEMPTED", "NODE_FAIL")), r.c.state), else_=literal(""))
    return state, case((r.c.state == "NODE_FAIL", r.c.nodes), else_=literal(""))
