"""Goodput: how much of what was held trained something, and what took the rest."""

from __future__ import annotations

from fractions import Fraction

from fastapi import APIRouter

from headway.api import reckoning
from headway.api.access import Anyone, State
from headway.api.reckoning import Place
from headway.api.saving import failure_hours, stalled_cause, stalls
from headway.api.state import AppState
from headway.api.usage import Look, MonthText, hours_of, looked
from headway.ledger import goodput as good
from headway.ledger.goodput import Cause, Parts
from headway.ledger.money import cents, usd
from headway.ledger.periods import Period
from headway.store.usage import Only, RunRow, Total
from headway.wire.ledger import CauseOut, GoodputOut, PartsOut

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])
MOST_LOSSY = 2000  # runs that are looked at for causes, the dearest
_BLAME_S = 120.0  # between a run's end and the incident that ended it


@router.get("/goodput")
async def goodput(name: str, state: State, who: Anyone, period: MonthText = "") -> GoodputOut:
    """How much of what was held trained, what took the rest, dearest first."""
    return await goodput_of(state, await looked(state, name, who, period))


async def goodput_of(state: AppState, look: Look) -> GoodputOut:
    place, month = look.place, look.month
    totals = await state.store.usage(place.name, look.span, ["team"], Only(look.seen))
    parts = {one.by[0]: _parts(one) for one in totals if one.gpu_s or one.waited_gpu_s}
    whole = Parts(
        *(sum(getattr(one, field) for one in parts.values()) for field in ("productive", "lost", "idle", "waiting"))
    )
    stalled = await stalls(state, look)
    causes = [*await _lost_to(state, look), *await _queue(state, look, whole), *stalled_cause(stalled)]
    return GoodputOut(
        cluster=place.name,
        period=month.name,
        start=month.start,
        end=month.end,
        as_of=place.now,
        simulated=place.cluster.simulated_gpus if place.cluster else False,
        total=_parts_out("", whole),
        teams=[_parts_out(team, one) for team, one in parts.items()],
        causes=[
            CauseOut(
                kind=one.kind,
                what=one.what,
                gpu_hours=hours_of(one.gpu_s),
                usd=usd(cents(one.usd)),
                jobs=list(one.jobs),
            )
            for one in good.ranked(causes)
        ],
        failure_hours=await failure_hours(state, place, month),
        checkpoints=[one.out() for one in stalled],
    )


def _parts(one: Total) -> Parts:
    return Parts(one.gpu_s - one.lost_gpu_s - one.idle_gpu_s, one.lost_gpu_s, one.idle_gpu_s, one.waited_gpu_s)


def _parts_out(team: str, one: Parts) -> PartsOut:
    return PartsOut(
        team=team,
        productive_gpu_hours=hours_of(one.productive),
        lost_gpu_hours=hours_of(one.lost),
        idle_gpu_hours=hours_of(one.idle),
        waited_gpu_hours=hours_of(one.waiting),
        goodput=None if one.goodput is None else round(one.goodput, 6),
        ettr=None if one.ettr is None else round(one.ettr, 6),
    )


async def _lost_to(state: AppState, look: Look) -> list[Cause]:
    """What the dearest runs lost and idled, by what took it."""
    place, month = look.place, look.month
    found = await state.store.runs(place.name, look.span, Only(look.seen), first="lossy", limit=MOST_LOSSY)
    if not found:
        return []
    cut = await reckoning.segments(state, place, month, {one.group for one in found})
    blamed = await _incidents(state, place, month)
    notebooks = {one.job_id for one in await state.store.notebooks(place.name)}
    sums: dict[tuple[str, str], list[tuple[int, Fraction, int]]] = {}
    for run in found:
        idles = ("notebook", "notebooks that idle") if run.job in notebooks else ("idle", "GPUs held that do nothing")
        for segment in cut:
            if segment.group != run.group:
                continue
            ends = run.end or place.now
            _, *parts = good.within(run.start, ends, run.lost_s, run.idle_s, segment.start, min(segment.end, place.now))
            rate = segment.usd_per_second * run.units / run.per_node
            for key, amount_s in zip((_why_lost(run, blamed), idles), parts, strict=True):
                if amount_s:
                    sums.setdefault(key, []).append((run.gpus * amount_s, rate * amount_s, run.job))
    return [
        Cause(
            kind,
            what,
            sum(gpu_s for gpu_s, _, _ in rows),
            sum((cost for _, cost, _ in rows), Fraction(0)),
            tuple(dict.fromkeys(job for _, _, job in sorted(rows, key=lambda row: -row[1])))[:5],
        )
        for (kind, what), rows in sums.items()
    ]


async def _incidents(state: AppState, place: Place, month: Period) -> dict[int, list[tuple[float, str]]]:
    """Job -> (when an incident sent it back, the incident in words)."""
    found: dict[int, list[tuple[float, str]]] = {}
    for one in await state.store.incidents(place.name, limit=1000):
        if month.start <= one.opened_at < month.end + _BLAME_S:
            whole = await state.store.incident(one.number)
            for job in whole.jobs:
                found.setdefault(job.job, []).append((job.requeued_at, f"{one.what} on {one.node}"))
    return found


def _why_lost(run: RunRow, blamed: dict[int, list[tuple[float, str]]]) -> tuple[str, str]:
    for at, words in blamed.get(run.job, ()):
        if abs(at - run.end) <= _BLAME_S:
            return "fault", words
    if run.state == "PREEMPTED":
        return "preemption", "preemption"
    if run.state == "NODE_FAIL":
        several = "," in run.nodes or "[" in run.nodes
        return "fault", f"a node of {run.nodes} failed" if several else f"{run.nodes} failed"
    return "requeue", "requeued by hand or by its own wish"


async def _queue(state: AppState, look: Look, whole: Parts) -> list[Cause]:
    """Nobody pays for waiting; what stood idle while jobs waited was paid for. Only who sees the invoice sees that."""
    if look.seen is not None or not whole.waiting:
        return []
    found = (await reckoning.bill(state, look.place, look.month)).found
    idle = sum(one.cents["idle"] for one in found.teams) + sum(
        one.cents for one in found.unassigned if one.what == "idle"
    )
    held = sum(sum(one.cents[column] for column in ("productive", "lost", "held_idle")) for one in found.teams)
    waited = Fraction(held, 100) * whole.waiting / whole.held if whole.held else Fraction(idle, 100)
    return [Cause("queue", "idle while jobs waited, at most", whole.waiting, min(Fraction(idle, 100), waited))]
