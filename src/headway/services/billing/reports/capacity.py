"""Reports by hour how many GPUs were allocated and how fragmented the free ones were, and how long jobs waited."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

from headway.billing import capacity as rules
from headway.billing.capacity import Cover, Fragments, Stretches
from headway.domain.billing.ledger import MachineLifetime
from headway.domain.machines.gpu_parts import mig_profiles
from headway.schemas.billing.capacity import CapacityOut, HourOut, TypeOut, WaitOut
from headway.services.app_state import AppState
from headway.services.billing.ledger.daily_rollups import load_allocated_seconds_by_day_sums, load_coverage
from headway.services.billing.reports.fragmentation import gpu_plans_by_group, gpus_by_node, load_fragmentation
from headway.services.billing.reports.report_scope import HOUR_S, BilledCluster, ReportScope, to_hours
from headway.store.billing.run_sums import ReportSpan

_HOUR = ("allocated", "present", "free", "fragmented")


Waits = list[tuple[int, int, int]]


async def load_capacity(state: AppState, scope: ReportScope) -> CapacityOut:
    """Returns the month's utilisation, fragmentation and waiting times, and the GPUs that are free now, for all teams
    together."""
    billed, month, span = scope.billed, scope.month, scope.span
    until = min(month.end, billed.now)
    marks = range(month.start, max(until, month.start + 1) + HOUR_S - 1, HOUR_S)
    free = rules.free(
        [
            (node.gpus, node.gpus_used)
            for node in state.live.snapshot(billed.name).nodes
            if node.usable and node.gpus and not node.reservation and not mig_profiles(node.gpu_types)
        ]
    )
    types, waits = await _types(state, billed, span, marks)
    return CapacityOut(
        cluster=billed.name,
        period=month.name,
        start=month.start,
        end=month.end,
        types=types,
        waits=_waits(waits),
        free_gpus=free.gpus,
        free_whole_node_gpus=free.together,
        fragmentation=round(free.fragmentation, 4),
    )


async def _types(state: AppState, billed: BilledCluster, span: ReportSpan, marks: range) -> tuple[list[TypeOut], Waits]:
    """Returns (hours by GPU type, waiting times). Runs two long queries at a time."""

    async def allocated_and_waits() -> tuple[dict[str, list[float]], Waits]:
        return await _allocated_seconds(state, billed, span, whole), await state.store.capacity.queue_waits(
            billed.name, span
        )

    lives = await state.store.machine_lifetimes.between(billed.name, span.start, span.end)
    whole = await load_coverage(state.store, billed.name, span, marks)
    (allocated, waits), unused = await asyncio.gather(
        allocated_and_waits(), load_fragmentation(state, billed, lives, span, whole)
    )
    there, nothing = (
        present_gpu_seconds(billed, gpus_by_node(state, billed), lives, span, marks),
        [0.0] * (len(marks) - 1),
    )
    found = []
    for kind in sorted(allocated.keys() | there.keys()):
        mine, had = allocated.get(kind, nothing), there.get(kind, nothing)
        pieces = unused[kind](mine) if kind in unused else Fragments(tuple(nothing), tuple(nothing))
        hours = [
            HourOut(at=at, **{name: to_hours(gpu_s) for name, gpu_s in zip(_HOUR, sums, strict=True)})
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


async def _allocated_seconds(
    state: AppState, billed: BilledCluster, span: ReportSpan, whole: Cover
) -> dict[str, list[float]]:
    """Returns the GPU-seconds that were allocated to runs in each hour, by GPU type. Only groups that the file still names count,
    because the GPUs of other groups' machines are unknown."""
    every = await load_allocated_seconds_by_day_sums(state.store, billed.name, span, whole)
    plans = gpu_plans_by_group(billed)
    found: dict[str, list[float]] = {}
    for (_, group), sums in every.items():
        if group in plans:
            key = plans[group].gpu_type
            found[key] = [total + other for total, other in zip(found.get(key, [0.0] * len(sums)), sums, strict=True)]
    return found


def present_gpu_seconds(
    billed: BilledCluster, gpus: Mapping[str, int], lives: Iterable[MachineLifetime], span: ReportSpan, marks: range
) -> dict[str, list[float]]:
    """Returns the GPU-seconds that machines offered between each two marks, by GPU type, of groups that the file still names.
    `gpus` is by node."""
    found: dict[str, Stretches] = {}
    plans = gpu_plans_by_group(billed)
    for life in lives:
        if (plan := plans.get(life.group)) is not None:
            alive = max(life.began, span.start), min(life.ended or span.now, span.now, span.end)
            found.setdefault(plan.gpu_type, Stretches(marks)).add(*alive, gpus.get(life.machine, plan.gpus))
    return {kind: cover.seconds() for kind, cover in found.items()}


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
