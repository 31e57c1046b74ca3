"""Energy and capacity: what the GPUs drew, how full they were, how long jobs waited."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.api.routers.billing.usage import HOUR_S, MonthText, energy_sum, hours_of, looked
from headway.billing import capacity as rules
from headway.billing.capacity import Cover, Fragments, Stretches
from headway.billing.energy import Energy
from headway.billing.money import cents, usd
from headway.domain.billing import Life
from headway.schemas.billing import CapacityOut, EnergyOut, EnergyRow, HourOut, TypeOut, WaitOut
from headway.services.billing.daily_rollups import covered, held_between_marks
from headway.services.billing.fragmentation import fragments_of, gpus_there, plans_of
from headway.services.billing.invoicing import Look, Place
from headway.services.context import AppState
from headway.store.billing.sums import Only, Span
from headway.store.billing.usage import Total

_HOUR = ("held", "there", "free", "fragmented")
router = APIRouter(prefix="/clusters/{name}", tags=["costs"])


@router.get("/energy")
async def energy(name: str, state: State, who: Anyone, period: MonthText = "") -> EnergyOut:
    """Of GPUs and nodes as their power was measured, else by kind (`estimated`), with the site's own share."""
    return await energy_of(state, await looked(state, name, who, period))


async def energy_of(state: AppState, look: Look) -> EnergyOut:
    place, month = look.place, look.month
    totals = await state.store.usage(place.name, look.span, ["team", "gpu_type"], Only(look.seen))
    teams: dict[str, list[Total]] = {}
    for one in totals:
        teams.setdefault(one.by[0], []).append(one)
    price = place.costs.usd_per_kwh
    return EnergyOut(
        cluster=place.name,
        period=month.name,
        start=month.start,
        end=month.end,
        pue=place.costs.pue,
        usd_per_kwh=None if price is None else float(price),
        simulated=place.simulated,
        total=_energy_row("", totals, place.costs.pue, price),
        teams=[_energy_row(team, parts, place.costs.pue, price) for team, parts in sorted(teams.items())],
    )


def _energy_row(team: str, parts: Iterable[Total], pue: float, price: Decimal | None) -> EnergyRow:
    found = energy_sum(parts)
    kwh = found.kwh(pue)
    return EnergyRow(
        team=team,
        kwh=round(kwh, 4),
        measured_kwh=round(Energy(found.measured_j).kwh(pue), 4),
        estimated_kwh=round(Energy(0, found.estimated_j).kwh(pue), 4),
        usd=None if price is None else usd(cents(Fraction(price) * Fraction(kwh))),
    )


# --- capacity


@router.get("/capacity")
async def capacity(name: str, state: State, who: Anyone, period: MonthText = "") -> CapacityOut:
    """Utilisation and fragmentation by hour and GPU type, waits by job size, and what is free now. The same for all."""
    return await capacity_of(state, await looked(state, name, who, period))


async def capacity_of(state: AppState, look: Look) -> CapacityOut:
    place, month, span = look.place, look.month, look.span
    until = min(month.end, place.now)
    marks = range(month.start, max(until, month.start + 1) + HOUR_S - 1, HOUR_S)
    free = rules.free(
        [
            (node.gpus, node.gpus_used)
            for node in state.live.snapshot(place.name).nodes
            if node.usable and node.gpus and not node.reservation
        ]
    )
    types, waits = await _types(state, place, span, marks)
    return CapacityOut(
        cluster=place.name,
        period=month.name,
        start=month.start,
        end=month.end,
        types=types,
        waits=_waits(waits),
        free_gpus=free.gpus,
        free_whole_node_gpus=free.together,
        fragmentation=round(free.fragmentation, 4),
    )


Waits = list[tuple[int, int, int]]


async def _types(state: AppState, place: Place, span: Span, marks: range) -> tuple[list[TypeOut], Waits]:
    """What hours were, and how long runs waited: two long questions at a time."""

    async def held_and_waits() -> tuple[dict[str, list[float]], Waits]:
        return await _held(state, place, span, whole), await state.store.waits(place.name, span)

    lives = await state.store.lives(place.name, span.start, span.end)
    whole = await covered(state.store, place.name, span, marks)
    (held, waits), unused = await asyncio.gather(held_and_waits(), fragments_of(state, place, lives, span, whole))
    there, nothing = _there(place, gpus_there(state, place), lives, span, marks), [0.0] * (len(marks) - 1)
    found = []
    for kind in sorted(held.keys() | there.keys()):
        mine, had = held.get(kind, nothing), there.get(kind, nothing)
        pieces = unused[kind](mine) if kind in unused else Fragments(tuple(nothing), tuple(nothing))
        hours = [
            HourOut(at=at, **{name: hours_of(gpu_s) for name, gpu_s in zip(_HOUR, sums, strict=True)})
            for at, *sums in zip(marks, mine, had, pieces.free, pieces.fragmented, strict=False)
        ]
        found.append(
            TypeOut(
                gpu_type=kind,
                utilisation=round(sum(mine) / sum(had), 6) if sum(had) else None,
                fragmentation=None if pieces.share is None else round(pieces.share, 6),
                hours=hours,
            )
        )
    return found, waits


async def _held(state: AppState, place: Place, span: Span, whole: Cover) -> dict[str, list[float]]:
    """GPU-seconds that runs held in each hour, by GPU type, of the groups that the file still names: of others nobody knows any
    more what their machines had."""
    every = await held_between_marks(state.store, place.name, span, whole)
    plans = plans_of(place)
    found: dict[str, list[float]] = {}
    for (_, group), sums in every.items():
        if group in plans:
            key = plans[group].gpu_type
            found[key] = [one + other for one, other in zip(found.get(key, [0.0] * len(sums)), sums, strict=True)]
    return found


def _there(
    place: Place, gpus: Mapping[str, int], lives: Iterable[Life], span: Span, marks: range
) -> dict[str, list[float]]:
    """GPU-seconds that machines had in each hour, by type, as far as the file still says what they have. `gpus`: of nodes."""
    found: dict[str, Stretches] = {}
    plans = plans_of(place)
    for life in lives:
        if (plan := plans.get(life.group)) is not None:
            alive = max(life.began, span.start), min(life.ended or span.now, span.now, span.end)
            found.setdefault(plan.gpu_type, Stretches(marks)).add(*alive, gpus.get(life.machine, plan.gpus))
    return {kind: one.seconds() for kind, one in found.items()}


def _waits(rows: Iterable[tuple[int, int, int]]) -> list[WaitOut]:
    sizes: dict[str, Counter[int]] = {words: Counter() for _, words in rules.SIZES}
    for gpus, waited_s, count in rows:
        sizes[rules.size_of(gpus)][waited_s] += count
    return [
        WaitOut(
            size=words,
            runs=sum(counts.values()),
            **{f"p{which}_s": rules.percentile(counts.items(), which) for which in rules.PERCENTILES},
        )
        for words, counts in sizes.items()
        if counts
    ]
