"""Attributes lost and idle GPU time of a period to its causes, in USD.

The database sums over all runs. Single runs are read only if an incident ended them, if they are notebooks, or to
name the most expensive ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from headway.billing import goodput as good
from headway.billing.goodput import Cause, Parts
from headway.billing.prices.price_segments import Segment
from headway.errors import Refused
from headway.services.app_state import AppState
from headway.services.billing.reports.report_scope import ReportScope
from headway.store.billing.losses import Blamed, CutShort, Piece
from headway.store.billing.run_sums import Only, ReportSpan
from headway.store.billing.usage import Behind

MAX_INCIDENT_DISTANCE_S = 120.0  # between a run's end and the incident that is assumed to have ended it
IDLE = "GPUs allocated but idle"
NOTEBOOKS = "idle notebooks"
QUEUE = "idle GPUs while jobs waited, at most"  # its runs are those that waited
CHECKPOINTS = "training paused to write checkpoints"
MAX_NAMED_JOBS = 5  # of one cause
_TOP_RUNS = 20  # runs from which the named jobs are chosen; one job may have several


@dataclass
class _Tally:
    """Sums of one cause. `runs` are (USD, job) of the single runs that are known."""

    gpu_s: int = 0
    usd: Fraction = Fraction(0)
    runs: list[tuple[Fraction, int]] = field(default_factory=list)

    def cause(self, kind: str, what: str) -> Cause:
        """Returns the sums as a cause of this kind."""
        return Cause(kind, what, self.gpu_s, self.usd, _named(self.runs))


@dataclass(frozen=True, slots=True)
class LossesByCause:
    """The cost of lost work and idle GPUs, by cause."""

    lost_work: list[Cause]
    notebooks: _Tally
    idlest_runs: list[tuple[Fraction, int]]  # (USD, job) of the runs that idled most, without notebooks

    def causes(self, whole: Parts, idle_usd: Fraction) -> list[Cause]:
        """Returns the causes. They add up to chargeback's columns of lost and of allocated but idle time: idle time of
        other jobs than notebooks is the rest of `whole` and of `idle_usd`. Losses on nodes that cost nothing have no
        cause."""
        rest = _Tally(whole.idle - self.notebooks.gpu_s, idle_usd - self.notebooks.usd, self.idlest_runs)
        idle = [
            self.notebooks.cause("notebook", NOTEBOOKS),
            rest.cause("idle", IDLE),
        ]
        return [*self.lost_work, *idle]


async def attribute_losses(state: AppState, scope: ReportScope, segments: Sequence[Segment]) -> LossesByCause:
    """Returns the losses of the scope's month. `segments` are the month cut by prices."""
    return LossesByCause(await _lost(state, scope, segments), *await _idle(state, scope, segments))


async def data_began_at(state: AppState, name: str) -> int:
    """Returns when the present cluster of this name began, in unix seconds. Checkpoints that trainings reported earlier
    were deleted with the previous cluster's data; its runs were not."""
    return int(max(await state.store.operations.data_deletion_times(name), default=0))


async def runs_behind_cause(state: AppState, name: str, span: ReportSpan, only: Only, what: str) -> Behind:
    """Returns a selection of the runs behind a cause, given in the words of goodput. Raises Refused if nothing was lost
    to it."""
    store = state.store
    if what in (IDLE, NOTEBOOKS):
        books = tuple(
            dict.fromkeys(notebook.run[:2] for notebook in await store.losses.idle_notebooks(name, span, only))
        )
        return Behind(idle=True, runs=books) if what == NOTEBOOKS else Behind(idle=True, but=books)
    if what == CHECKPOINTS:
        return Behind(saved=True, since=await data_began_at(state, name))
    blamed = await store.losses.lost_to_incidents(name, span, only, MAX_INCIDENT_DISTANCE_S)
    if mine := [blamed_run for blamed_run in blamed if _blame(blamed_run) == what]:
        return Behind(lost=True, runs=tuple(blamed_run.run[:2] for blamed_run in mine))
    how = next((how for how, _ in await store.losses.totals(name, span, only) if _words(how)[1] == what), None)
    if how is None:
        raise Refused(f"nothing was lost to {what!r}", hint="headway goodput lists the causes")
    others = tuple(blamed_run.run[:2] for blamed_run in blamed if blamed_run.how == how)
    return Behind(lost=True, state=how.state, nodes=how.nodes, but=others)


# --- lost


async def _lost(state: AppState, scope: ReportScope, segments: Sequence[Segment]) -> list[Cause]:
    store, name = state.store, scope.billed.name
    tallies: dict[CutShort, _Tally] = {}
    for segment in segments:
        for how, amount in await store.losses.totals(name, *_of(segment, scope)):
            tally = tallies.setdefault(how, _Tally())
            tally.gpu_s += amount.gpu_s
            tally.usd += segment.usd_per_second * Fraction(amount.unit_s, amount.per_node)
    if not tallies:
        return []
    blamed = await store.losses.lost_to_incidents(name, scope.span, Only(scope.visible_teams), MAX_INCIDENT_DISTANCE_S)
    faults: dict[str, _Tally] = {}
    for run in blamed:
        gpu_s, cost = _lost_of(run, scope, segments)
        if not cost or run.how not in tallies:  # it came after the sums were made; the next report includes it
            continue
        tallies[run.how].gpu_s -= gpu_s
        tallies[run.how].usd -= cost
        fault = faults.setdefault(_blame(run), _Tally())
        fault.gpu_s += gpu_s
        fault.usd += cost
        fault.runs.append((cost, run.job))
    found = good.ranked(
        [
            *(tally.cause("fault", words) for words, tally in faults.items()),
            *(tally.cause(*_words(how)) for how, tally in tallies.items()),
        ]
    )
    named = {_words(how): jobs for how, jobs in (await _losers(state, scope, segments, tallies, blamed, found)).items()}
    return [replace(cause, jobs=cause.jobs or named.get((cause.kind, cause.what), ())) for cause in found]


def _blame(run: Blamed) -> str:
    return f"{run.what} on {run.node}"


def _words(how: CutShort) -> tuple[str, str]:
    """Returns (kind of the cause, the cause in words)."""
    if how.state == "PREEMPTED":
        return "preemption", "preemption"
    if how.state == "NODE_FAIL":
        several = "," in how.nodes or "[" in how.nodes
        return "fault", f"a node of {how.nodes} failed" if several else f"{how.nodes} failed"
    return "requeue", "requeued by a person or by the job itself"


def _lost_of(run: Blamed, scope: ReportScope, segments: Iterable[Segment]) -> tuple[int, Fraction]:
    """Returns (GPU-seconds, USD) that the run lost, rounded as the database rounds them."""
    gpu_s, cost = 0, Fraction(0)
    for segment in segments:
        if segment.group == run.group:
            until = min(segment.end, scope.billed.now)
            _, seconds, _ = good.part_within(run.start, run.end, run.lost_s, 0, segment.start, until)
            gpu_s += round(run.gpus * seconds)
            cost += segment.usd_per_second * Fraction(run.units * seconds, run.per_node)
    return gpu_s, cost


async def _losers(
    state: AppState,
    scope: ReportScope,
    segments: Iterable[Segment],
    hows: Iterable[CutShort],
    blamed: Iterable[Blamed],
    shown: Iterable[Cause],
) -> dict[CutShort, tuple[int, ...]]:
    """Returns the jobs that lost most, by how they ended, for shown causes that no incident explains."""
    names = {(cause.kind, cause.what) for cause in shown if not cause.jobs}
    chosen, others = [how for how in hows if _words(how) in names], {blamed_run.run for blamed_run in blamed}
    runs: dict[CutShort, list[tuple[Fraction, int]]] = {}
    for segment in segments:
        found = await state.store.losses.largest_losses(
            scope.billed.name, *_of(segment, scope), chosen, _TOP_RUNS + len(others)
        )
        for how, piece in found:
            if piece.run not in others:
                runs.setdefault(how, []).extend(_costs(segment, [piece]))
    return {how: _named(rows) for how, rows in runs.items()}


# --- idle


async def _idle(
    state: AppState, scope: ReportScope, segments: Sequence[Segment]
) -> tuple[_Tally, list[tuple[Fraction, int]]]:
    """Returns (notebooks, the most expensive idle runs of all other jobs)."""
    store, name = state.store, scope.billed.name
    books, idlest = _Tally(), []
    found = await store.losses.idle_notebooks(name, scope.span, Only(scope.visible_teams))
    books.gpu_s = sum(one.gpu_s for one in found)
    others = {one.run for one in found}
    for segment in segments:
        mine = _of(segment, scope)
        books.runs += _costs(segment, await store.losses.idle_notebooks(name, *mine) if found else ())
        dearest = await store.losses.most_idle(name, *mine, _TOP_RUNS + len(others))
        idlest += _costs(segment, (piece for piece in dearest if piece.run not in others))
    books.usd = sum((cost for cost, _ in books.runs), Fraction(0))
    return books, idlest


# --- both


def _of(segment: Segment, scope: ReportScope) -> tuple[ReportSpan, Only]:
    return ReportSpan(segment.start, segment.end, scope.billed.now), Only(scope.visible_teams, group=segment.group)


def _costs(segment: Segment, pieces: Iterable[Piece]) -> list[tuple[Fraction, int]]:
    return [(segment.usd_per_second * Fraction(piece.unit_s, piece.per_node), piece.job) for piece in pieces]


def _named(runs: Iterable[tuple[Fraction, int]]) -> tuple[int, ...]:
    """Returns the jobs of the most expensive runs."""
    dearest = sorted(runs, key=lambda one: (-one[0], one[1]))
    return tuple(dict.fromkeys(job for cost, job in dearest if cost))[:MAX_NAMED_JOBS]
