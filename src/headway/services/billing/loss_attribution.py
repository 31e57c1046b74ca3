"""What took the GPU time that trained nothing, in dollars: of every run of a period, however many they are. The database makes
the sums; of single runs only those are read that an incident cut short, that are notebooks, or that are named as dearest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from headway.billing import goodput as good
from headway.billing.goodput import Cause, Parts
from headway.billing.invoice import Segment
from headway.errors import Refused
from headway.services.billing.report_scope import ReportScope
from headway.services.context import AppState
from headway.store.billing.losses import Blamed, CutShort, Piece
from headway.store.billing.run_sums import Only, Span
from headway.store.billing.usage import Behind

BLAME_S = 120.0  # between a run's end and the incident that ended it
IDLE = "GPUs held that do nothing"
NOTEBOOKS = "notebooks that idle"
QUEUE = "idle while jobs waited, at most"  # behind it are the runs that waited
CHECKPOINTS = "trainings that stand still while they save"
NAMED = 5  # jobs of a cause
_DEAREST = 20  # runs among which they are looked for: of one job there may be several


@dataclass
class _Tally:
    """`runs`: (USD, job) of those that are known one by one."""

    gpu_s: int = 0
    usd: Fraction = Fraction(0)
    runs: list[tuple[Fraction, int]] = field(default_factory=list)

    def cause(self, kind: str, what: str) -> Cause:
        return Cause(kind, what, self.gpu_s, self.usd, _named(self.runs))


@dataclass(frozen=True, slots=True)
class LossesByCause:
    """What lost work and idle GPUs cost, by what took it."""

    lost_work: list[Cause]
    notebooks: _Tally
    idlest_runs: list[tuple[Fraction, int]]  # (USD, job) of what idled most beside them

    def causes(self, whole: Parts, idle_usd: Fraction) -> list[Cause]:
        """They sum to what chargeback says was lost and held but idle: everything that idled and was no notebook is what these
        leave of `whole` and of the dollars. What was lost on nodes that cost nothing is no cause."""
        rest = _Tally(whole.idle - self.notebooks.gpu_s, idle_usd - self.notebooks.usd, self.idlest_runs)
        idle = [
            self.notebooks.cause("notebook", NOTEBOOKS),
            rest.cause("idle", IDLE),
        ]
        return [*self.lost_work, *idle]


async def attribute_losses(state: AppState, look: ReportScope, cut: Sequence[Segment]) -> LossesByCause:
    """`cut`: the month by its prices."""
    return LossesByCause(await _lost(state, look, cut), *await _idle(state, look, cut))


async def data_began_at(state: AppState, name: str) -> int:
    """Since when the cluster of this name is the one it is, with its data: before, another one may have had the name. What
    trainings said of their checkpoints went with that one's data, its runs did not."""
    return int(max(await state.store.operations.data_deletion_times(name), default=0))


async def runs_behind_cause(state: AppState, name: str, span: Span, only: Only, what: str) -> Behind:
    """The runs that a cause is made of, by its words. Raises Refused for one that nothing was lost to."""
    store = state.store
    if what in (IDLE, NOTEBOOKS):
        books = tuple(dict.fromkeys(one.run[:2] for one in await store.losses.idle_notebooks(name, span, only)))
        return Behind(idle=True, runs=books) if what == NOTEBOOKS else Behind(idle=True, but=books)
    if what == CHECKPOINTS:
        return Behind(saved=True, since=await data_began_at(state, name))
    blamed = await store.losses.lost_to_incidents(name, span, only, BLAME_S)
    if mine := [one for one in blamed if _blame(one) == what]:
        return Behind(lost=True, runs=tuple(one.run[:2] for one in mine))
    how = next((how for how, _ in await store.losses.totals(name, span, only) if _words(how)[1] == what), None)
    if how is None:
        raise Refused(f"nothing was lost to {what!r}", hint="headway goodput says what was")
    others = tuple(one.run[:2] for one in blamed if one.how == how)
    return Behind(lost=True, state=how.state, nodes=how.nodes, but=others)


# --- lost


async def _lost(state: AppState, look: ReportScope, cut: Sequence[Segment]) -> list[Cause]:
    store, name = state.store, look.billed.name
    tallies: dict[CutShort, _Tally] = {}
    for segment in cut:
        for how, amount in await store.losses.totals(name, *_of(segment, look)):
            tally = tallies.setdefault(how, _Tally())
            tally.gpu_s += amount.gpu_s
            tally.usd += segment.usd_per_second * Fraction(amount.unit_s, amount.per_node)
    if not tallies:
        return []
    blamed = await store.losses.lost_to_incidents(name, look.span, Only(look.visible_teams), BLAME_S)
    faults: dict[str, _Tally] = {}
    for run in blamed:
        gpu_s, cost = _lost_of(run, look, cut)
        if not cost or run.how not in tallies:  # one that came after the sums were made: the next report has it
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
    named = {_words(how): jobs for how, jobs in (await _losers(state, look, cut, tallies, blamed, found)).items()}
    return [replace(one, jobs=one.jobs or named.get((one.kind, one.what), ())) for one in found]


def _blame(run: Blamed) -> str:
    return f"{run.what} on {run.node}"


def _words(how: CutShort) -> tuple[str, str]:
    """Kind of the cause, and the cause in words."""
    if how.state == "PREEMPTED":
        return "preemption", "preemption"
    if how.state == "NODE_FAIL":
        several = "," in how.nodes or "[" in how.nodes
        return "fault", f"a node of {how.nodes} failed" if several else f"{how.nodes} failed"
    return "requeue", "requeued by hand or by its own wish"


def _lost_of(run: Blamed, look: ReportScope, cut: Iterable[Segment]) -> tuple[int, Fraction]:
    """(GPU-seconds, USD), as the database sums them."""
    gpu_s, cost = 0, Fraction(0)
    for one in cut:
        if one.group == run.group:
            until = min(one.end, look.billed.now)
            _, seconds, _ = good.within(run.start, run.end, run.lost_s, 0, one.start, until)
            gpu_s += run.gpus * seconds
            cost += one.usd_per_second * Fraction(run.units * seconds, run.per_node)
    return gpu_s, cost


async def _losers(
    state: AppState,
    look: ReportScope,
    cut: Iterable[Segment],
    hows: Iterable[CutShort],
    blamed: Iterable[Blamed],
    shown: Iterable[Cause],
) -> dict[CutShort, tuple[int, ...]]:
    """The jobs that lost most, of causes that are shown and that no incident is to blame for."""
    names = {(one.kind, one.what) for one in shown if not one.jobs}
    wanted, others = [how for how in hows if _words(how) in names], {one.run for one in blamed}
    runs: dict[CutShort, list[tuple[Fraction, int]]] = {}
    for segment in cut:
        found = await state.store.losses.largest_losses(
            look.billed.name, *_of(segment, look), wanted, _DEAREST + len(others)
        )
        for how, piece in found:
            if piece.run not in others:
                runs.setdefault(how, []).extend(_costs(segment, [piece]))
    return {how: _named(rows) for how, rows in runs.items()}


# --- idle


async def _idle(
    state: AppState, look: ReportScope, cut: Sequence[Segment]
) -> tuple[_Tally, list[tuple[Fraction, int]]]:
    """Notebooks, and the dearest runs of everything else."""
    store, name = state.store, look.billed.name
    books, idlest = _Tally(), []
    found = await store.losses.idle_notebooks(name, look.span, Only(look.visible_teams))
    books.gpu_s = sum(one.gpu_s for one in found)
    others = {one.run for one in found}
    for segment in cut:
        mine = _of(segment, look)
        books.runs += _costs(segment, await store.losses.idle_notebooks(name, *mine) if found else ())
        dearest = await store.losses.most_idle(name, *mine, _DEAREST + len(others))
        idlest += _costs(segment, (piece for piece in dearest if piece.run not in others))
    books.usd = sum((cost for cost, _ in books.runs), Fraction(0))
    return books, idlest


# --- both


def _of(segment: Segment, look: ReportScope) -> tuple[Span, Only]:
    return Span(segment.start, segment.end, look.billed.now), Only(look.visible_teams, group=segment.group)


def _costs(segment: Segment, pieces: Iterable[Piece]) -> list[tuple[Fraction, int]]:
    return [(segment.usd_per_second * Fraction(one.unit_s, one.per_node), one.job) for one in pieces]


def _named(runs: Iterable[tuple[Fraction, int]]) -> tuple[int, ...]:
    """The jobs of the dearest."""
    dearest = sorted(runs, key=lambda one: (-one[0], one[1]))
    return tuple(dict.fromkeys(job for cost, job in dearest if cost))[:NAMED]
