"""Goodput: how much of what was held trained something, and what took the rest."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from fractions import Fraction

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, PathNumber, State
from headway.api.routers.billing.usage import MonthText, fresh, hours_of, looked, runs_of_job, teams_seen
from headway.api.routers.jobs.checkpoints import Stalls, failure_hours, stalls
from headway.billing import goodput as good
from headway.billing.goodput import Cause, Parts
from headway.billing.money import cents, usd
from headway.errors import NotFound
from headway.schemas.billing import CauseOut, GoodputOut, JobGoodputOut, PartsOut
from headway.services.billing import invoicing
from headway.services.billing.invoicing import Look, Sums, place_of
from headway.services.billing.loss_attribution import QUEUE, took
from headway.services.context import AppState
from headway.store.billing.sums import Only
from headway.store.billing.usage import RunRow, Times

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])


@router.get("/goodput")
async def goodput(name: str, state: State, who: Anyone, period: MonthText = "") -> GoodputOut:
    """How much of what was held trained, what took the rest, dearest first."""
    return await goodput_of(state, await looked(state, name, who, period))


@router.get("/goodput/jobs/{job_id}")
async def goodput_of_job(name: str, job_id: PathNumber, state: State, who: Anyone) -> JobGoodputOut:
    """The same of one job, over all its runs: what trained, was lost, did nothing and waited. Raises NotFound."""
    place = await place_of(state, name)
    seen = teams_seen(place, who)
    await fresh(state, place)
    runs = await runs_of_job(state, name, job_id, seen)
    if not runs:
        raise NotFound(f"the ledger of {name} has no run of job {job_id}", hint=f"headway usage {name} --runs")
    parts = [_parts_of(one, place.now) for one in runs]
    whole = Parts(*(sum(getattr(one, field.name) for one in parts) for field in fields(Parts)))
    return JobGoodputOut(
        cluster=place.name,
        job=job_id,
        user=runs[-1].user,
        runs=len({one.start for one in runs}),
        as_of=place.now,
        simulated=place.simulated,
        total=_parts_out(runs[-1].team, whole),
    )


def _parts_of(run: RunRow, now: int) -> Parts:
    """As the sums over a period count it (store.billing.usage)."""
    during = max(0, (run.end or now) - run.start)
    lost = min(run.lost_s, during)
    idle = min(run.idle_s, during - lost)
    times = (during - lost - idle, lost, idle, max(0, run.start - run.eligible))
    return Parts(*(seconds * run.gpus for seconds in times))


async def goodput_of(state: AppState, look: Look) -> GoodputOut:
    place, month = look.place, look.month
    sums = Sums(state, place, Only(look.seen), timed=True)
    cut = await invoicing.priced(state, place, month)
    every = [*cut, *await invoicing.unpriced(state, place, month)]

    async def all_runs() -> tuple[dict[str, Times], Stalls]:
        return await sums.times(every), await stalls(state, look)

    (times, stalled), lost = await asyncio.gather(all_runs(), took(state, look, cut))  # two long questions at a time
    by_use = sorted(times.items(), key=lambda one: (-one[1].gpu_s, one[0]))
    parts = {team: _parts(one) for team, one in by_use if one.gpu_s or one.waited_gpu_s}
    whole = Parts(
        *(sum(getattr(one, field) for one in parts.values()) for field in ("productive", "lost", "idle", "waiting"))
    )
    causes = [*lost.causes(whole, await sums.idle_usd(cut)), *await _queue(state, look, sums, whole), *stalled.causes]
    return GoodputOut(
        cluster=place.name,
        period=month.name,
        start=month.start,
        end=month.end,
        as_of=place.now,
        simulated=place.simulated,
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
        checkpoints=[one.out() for one in stalled.dearest],
    )


def _parts(one: Times) -> Parts:
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


async def _queue(state: AppState, look: Look, sums: Sums, whole: Parts) -> list[Cause]:
    """Nobody pays for waiting; what stood idle while jobs waited was paid for. Only who sees the invoice sees that."""
    if look.seen is not None or not whole.waiting:
        return []
    found = (await invoicing.bill(state, look.place, look.month, sums)).found
    idle = sum(one.cents["idle"] for one in found.teams) + sum(
        one.cents for one in found.unassigned if one.what == "idle"
    )
    held = sum(sum(one.cents[column] for column in ("productive", "lost", "held_idle")) for one in found.teams)
    waited = Fraction(held, 100) * whole.waiting / whole.held if whole.held else Fraction(idle, 100)
    return [Cause("queue", QUEUE, whole.waiting, min(Fraction(idle, 100), waited))]
