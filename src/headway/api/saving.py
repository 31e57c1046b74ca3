"""Checkpoints: how long trainings stand still for them, and how often a job should write one."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from fastapi import APIRouter, Query

from headway.api import reckoning
from headway.api.access import Anyone, State
from headway.api.reckoning import Place, place_of
from headway.api.state import AppState
from headway.api.usage import HOUR_S, Look, teams_seen
from headway.domain.ledger import Life, Saves
from headway.errors import Refused
from headway.ledger import goodput as good
from headway.ledger.goodput import Advice, Cause
from headway.ledger.money import cents, usd
from headway.ledger.periods import Period
from headway.wire.ledger import AdviceOut

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])
LATELY_S = 90 * 86_400  # failures of so long say how often a node fails
NEVER_H = 24 * 365.0  # a node that never failed is taken to do it once a year
FEWEST = 2  # checkpoints that say how often a job saves


@dataclass(frozen=True, slots=True)
class Stall:
    """What a job's checkpoints took in a period. `usd` is what the whole job cost in it."""

    job: int
    saves: Saves
    failure_s: float
    gpu_s: int
    usd: Fraction

    @property
    def share(self) -> Fraction:
        """Of its time, 0 to 1."""
        return min(Fraction(1), Fraction(self.saves.stalled_s) / Fraction(self.saves.up_s))

    @property
    def advice(self) -> Advice:
        return good.advice(self.saves.every_s, self.failure_s, self.saves.write_s)

    def out(self) -> AdviceOut:
        told = advice_out(self.job, self.saves.write_s, self.failure_s, self.advice)
        return told.model_copy(update={"saves_usd": usd(cents(self.usd * Fraction(self.advice.saves)))})


@router.get("/goodput/checkpoints")
async def checkpoints(
    name: str,
    state: State,
    who: Anyone,
    every_s: Annotated[float, Query(ge=0, le=1e7, description="0: as measured of the job")] = 0,
    write_s: Annotated[float, Query(ge=0, le=1e6, description="0: as measured of the job")] = 0,
    nodes: Annotated[int, Query(ge=0, le=100_000, description="0: those of the job")] = 0,
    job: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> AdviceOut:
    """How often a job should write a checkpoint, by how often nodes of this cluster failed lately: of one that reports, as
    it was measured, else by what is said here. Raises Refused where neither is known."""
    place = await place_of(state, name)
    seen = teams_seen(place, who)
    runs = [one for one in await state.store.runs_of(name, job) if seen is None or one.team in seen] if job else []
    known = (await state.store.saves(name, [job])).get(job) if runs else None
    if known is not None and known.count >= FEWEST:
        every_s, write_s = every_s or known.every_s, write_s or known.write_s
    if not every_s or not write_s:
        raise Refused(
            f"nobody measured checkpoints of job {job}"
            if job
            else "how often it writes, and for how long, is not said",
            hint="every_s=600&write_s=20; headway_train measures them by itself (docs/checkpoints.md)",
        )
    failure_s = await _failure_s(state, place, nodes or sum(one.node_count for one in runs[-1:]) or 1)
    return advice_out(job, write_s, failure_s, good.advice(every_s, failure_s, write_s))


def advice_out(job: int, write_s: float, failure_s: float, told: Advice) -> AdviceOut:
    return AdviceOut(
        job=job,
        now_s=round(told.now_s, 1),
        best_s=round(told.best_s, 1),
        write_s=round(write_s, 3),
        failure_s=round(failure_s),
        saves=round(told.saves, 6),
    )


async def stalls(state: AppState, look: Look) -> list[Stall]:
    """Of the jobs that one sees and that stood still longest; those whose better interval saves most first."""
    place, month, found = look.place, look.month, []
    for job, saves in (await state.store.most_stalled(place.name, month.start)).items():
        if saves.count < FEWEST or saves.up_s <= 0:
            continue
        rows = [
            one
            for one in await state.store.runs_of(place.name, job)
            if (look.seen is None or one.team in look.seen)
            and one.start < month.end
            and (one.end or place.now) > month.start
        ]
        if not rows:
            continue
        gpu_s = sum(one.gpus * (min(one.end or place.now, month.end) - max(one.start, month.start)) for one in rows)
        cost = sum(await reckoning.run_costs(state, place, rows, month), Fraction(0))
        failure_s = await _failure_s(state, place, rows[-1].node_count)
        found.append(Stall(job, saves, failure_s, gpu_s, cost))
    return sorted(found, key=lambda one: (-one.usd * Fraction(one.advice.saves), one.job))


def stalled_cause(found: list[Stall]) -> list[Cause]:
    """The time for which they stood still; it is part of what is productive otherwise."""
    if not found:
        return []
    dearest = sorted(found, key=lambda one: -one.usd * one.share)
    return [
        Cause(
            "checkpoints",
            "trainings that stand still while they save",
            sum(round(one.gpu_s * one.share) for one in found),
            sum((one.usd * one.share for one in found), Fraction(0)),
            tuple(one.job for one in dearest[:5]),
        )
    ]


async def _failure_s(state: AppState, place: Place, nodes: int) -> float:
    """Mean time between failures of a job on so many nodes."""
    hours = await failure_hours(state, place, Period("", place.now - LATELY_S, place.now))
    return (hours or NEVER_H) * HOUR_S / nodes


async def failure_hours(state: AppState, place: Place, month: Period) -> float | None:
    """Mean time between failures of one node: machine hours by incidents that took a node out; None without any."""
    lives = await state.store.lives(place.name, month.start, month.end)
    hours = sum(_seconds(life, month, place.now) for life in lives) / HOUR_S
    incidents = [
        one
        for one in await state.store.incidents(place.name, limit=1000)
        if one.drained and month.start <= one.opened_at < month.end
    ]
    return round(hours / len(incidents), 2) if incidents and hours else None


def _seconds(life: Life, month: Period, now: int) -> int:
    return max(0, min(life.ended or now, month.end, now) - max(life.began, month.start))
