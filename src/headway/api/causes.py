"""What took the GPU time that trained nothing, in dollars: of every run of a period, however many they are. The database makes
the sums; of single runs only those are read that an incident cut short, that are notebooks, or that are named as dearest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from headway.api import reckoning
from headway.api.reckoning import Sums
from headway.api.state import AppState
from headway.api.usage import Look
from headway.ledger import goodput as good
from headway.ledger.goodput import Cause, Parts
from headway.ledger.invoice import Segment
from headway.store.losses import Blamed, CutShort, Piece
from headway.store.usage import Only, Span

BLAME_S = 120.0  # between a run's end and the incident that ended it
NAMED = 5  # jobs of a cause
_DEAREST = 20  # runs among which they are looked for: of one job there may be several
_IDLE = ("idle", "GPUs held that do nothing")


@dataclass
class _Tally:
    """`runs`: (USD, job) of those that are known one by one."""

    gpu_s: int = 0
    usd: Fraction = Fraction(0)
    runs: list[tuple[Fraction, int]] = field(default_factory=list)

    def cause(self, kind: str, what: str) -> Cause:
        return Cause(kind, what, self.gpu_s, self.usd, _named(self.runs))


async def causes_of(state: AppState, look: Look, sums: Sums, whole: Parts) -> list[Cause]:
    """Of lost and idle time, ranked by cost. What was lost sums to what the usage says is lost, and so does what idled."""
    cut = await reckoning.priced(state, look.place, look.month)
    return good.ranked([*await _lost(state, look, cut), *await _idle(state, look, cut, sums, whole)])


# --- lost


async def _lost(state: AppState, look: Look, cut: list[Segment]) -> list[Cause]:
    store, name, only = state.store, look.place.name, Only(look.seen)
    tallies: dict[CutShort, _Tally] = {}
    for how, amount in await store.lost(name, look.span, only):
        tallies.setdefault(how, _Tally()).gpu_s += amount.gpu_s
    if not tallies:
        return []
    for segment in cut:
        for how, amount in await store.lost(name, *_of(segment, look)):
            tallies[how].usd += segment.usd_per_second * Fraction(amount.unit_s, amount.per_node)
    blamed = _nearest(await store.blamed(name, look.span, only, BLAME_S))
    faults: dict[str, _Tally] = {}
    for run in blamed:
        gpu_s, cost = _lost_of(run, look, cut)
        tallies[run.how].gpu_s -= gpu_s
        tallies[run.how].usd -= cost
        fault = faults.setdefault(f"{run.what} on {run.node}", _Tally())
        fault.gpu_s += gpu_s
        fault.usd += cost
        fault.runs.append((cost, run.job))
    told = {_words(how): how for how in tallies}
    found = good.ranked(
        [
            *(tally.cause("fault", words) for words, tally in faults.items()),
            *(tally.cause(*_words(how)) for how, tally in tallies.items()),
        ]
    )
    return [
        one if one.jobs else replace(one, jobs=await _losers(state, look, cut, told[one.kind, one.what], blamed))
        for one in found
    ]


def _words(how: CutShort) -> tuple[str, str]:
    """Kind of the cause, and the cause in words."""
    if how.state == "PREEMPTED":
        return "preemption", "preemption"
    if how.state == "NODE_FAIL":
        several = "," in how.nodes or "[" in how.nodes
        return "fault", f"a node of {how.nodes} failed" if several else f"{how.nodes} failed"
    return "requeue", "requeued by hand or by its own wish"


def _nearest(found: Iterable[Blamed]) -> list[Blamed]:
    """Each run once: of several incidents the one that spoke at its end is to blame."""
    return list({one.run: one for one in sorted(found, key=lambda one: -one.apart_s)}.values())


def _lost_of(run: Blamed, look: Look, cut: Iterable[Segment]) -> tuple[int, Fraction]:
    """(GPU-seconds, USD), as the database sums them."""
    now = look.place.now

    def seconds(start: int, end: int) -> int:
        return good.within(run.start, run.end, run.lost_s, 0, start, min(end, now))[1]

    rate = Fraction(run.units, run.per_node)
    cost = sum(
        (one.usd_per_second * rate * seconds(one.start, one.end) for one in cut if one.group == run.group), Fraction(0)
    )
    return run.gpus * seconds(look.month.start, look.month.end), cost


async def _losers(
    state: AppState, look: Look, cut: Iterable[Segment], how: CutShort, blamed: Iterable[Blamed]
) -> tuple[int, ...]:
    others = {one.run for one in blamed if one.how == how}
    runs = []
    for segment in cut:
        found = await state.store.lost_most(look.place.name, *_of(segment, look), how, _DEAREST + len(others))
        runs += _costs(segment, (piece for piece in found if piece.run not in others))
    return _named(runs)


# --- idle


async def _idle(state: AppState, look: Look, cut: list[Segment], sums: Sums, whole: Parts) -> list[Cause]:
    """Notebooks, and everything else: that is what is left of all that idled."""
    if not whole.idle:
        return []
    store, name = state.store, look.place.name
    books, rest = _Tally(), _Tally(whole.idle)
    found = await store.notebooks_idle(name, look.span, Only(look.seen))
    books.gpu_s = sum(gpu_s for _, gpu_s in found)
    rest.gpu_s -= books.gpu_s
    others = {piece.run for piece, _ in found}
    for segment in cut:
        for cell in await sums.held(segment):
            rest.usd += segment.usd_per_second * Fraction(cell.use.idle_unit_s, cell.use.per_node)
        span, only = _of(segment, look)
        pieces = [piece for piece, _ in await store.notebooks_idle(name, span, only)] if found else []
        books.runs += _costs(segment, pieces)
        dearest = await store.idled_most(name, span, only, _DEAREST + len(others))
        rest.runs += _costs(segment, (piece for piece in dearest if piece.run not in others))
    books.usd = sum((cost for cost, _ in books.runs), Fraction(0))
    rest.usd -= books.usd
    return [books.cause("notebook", "notebooks that idle"), rest.cause(*_IDLE)]


# --- both


def _of(segment: Segment, look: Look) -> tuple[Span, Only]:
    return Span(segment.start, segment.end, look.place.now), Only(look.seen, group=segment.group)


def _costs(segment: Segment, pieces: Iterable[Piece]) -> list[tuple[Fraction, int]]:
    return [(segment.usd_per_second * Fraction(one.unit_s, one.per_node), one.job) for one in pieces]


def _named(runs: Iterable[tuple[Fraction, int]]) -> tuple[int, ...]:
    """The jobs of the dearest."""
    dearest = sorted(runs, key=lambda one: (-one[0], one[1]))
    return tuple(dict.fromkeys(job for cost, job in dearest if cost))[:NAMED]
