"""Stores sums of past days, so that reports read those instead of every run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headway.billing.capacity import HALF_S, Cover, Ends, Stretches, allocated_between, cover, halves
from headway.domain.billing.ledger import DAY_S
from headway.store import Store
from headway.store.billing.capacity import Touched
from headway.store.billing.daily_rollups import HOURS, RUNS
from headway.store.billing.run_sums import ReportSpan

DELAY_S = 3600  # after its end a day is summed, because accounting records come late
MAX_DAYS = 8  # summed at a time

NodeKind = tuple[str, int]  # (GPU type, GPUs per node)
HalfHours = dict[int, float]  # seconds by the start of the half hour


async def sum_days(store: Store, name: str, now: int, most: int = MAX_DAYS) -> int:
    """Sums up to `most` past days that are not summed yet, the latest first. Returns how many it summed."""
    runs = (await store.rollups.missing_days(name, RUNS, now - DELAY_S))[:most]
    for day in runs:
        await store.run_sums.save_day(name, day)
    hours = (await store.rollups.missing_days(name, HOURS, now - DELAY_S))[:most]
    for day in hours:
        await _sum_hours(store, name, day, now)
    return len(runs) + len(hours)


async def _sum_hours(store: Store, name: str, day: int, now: int) -> None:
    await store.capacity.begin_day(name, day)
    span, marks = ReportSpan(day, day + DAY_S, now), range(day, day + DAY_S + 1, HALF_S)
    allocated = await load_allocated_seconds(store, name, span, marks)
    touched: dict[str, list[Touched]] = {}
    for node, stretches in await store.capacity.busy_stretches_by_node(name, span, marks):
        touched.setdefault(node, []).append(stretches)
    whole = {key: [int(count) for count in seconds] for key, seconds in allocated.items()}
    nodes = {node: [int(count) for count in _seconds(marks, mine)] for node, mine in touched.items()}
    await store.capacity.save_day(
        name, day, whole, nodes
    )  # if runs changed meanwhile, the next round sums the day again


async def load_allocated_seconds(
    store: Store, name: str, span: ReportSpan, marks: range
) -> dict[tuple[str, str], list[float]]:
    """Returns the GPU-seconds that were allocated to runs between each two marks, by (GPU type, group), computed from the single
    runs."""
    begun = await store.capacity.gpu_changes(name, span, marks, False)
    ended = await store.capacity.gpu_changes(name, span, marks, True)
    return {
        key: allocated_between(
            marks, *({at: Ends(*sums) for at, sums in one.get(key, {}).items()} for one in (begun, ended))
        )
        for key in begun
    }


async def load_coverage(store: Store, name: str, span: ReportSpan, marks: range) -> Cover:
    """Returns which of the intervals between marks lie within days that are summed."""
    days = frozenset(await store.capacity.saved_days(name, span.start - DAY_S, span.end + DAY_S))
    return cover(marks, min(span.end, span.now), days)


async def load_allocated_seconds_by_day_sums(
    store: Store, name: str, span: ReportSpan, whole: Cover
) -> dict[tuple[str, str], list[float]]:
    """Returns the same as `load_allocated_seconds`, from the stored sums where there are any."""
    kept: dict[tuple[str, str], HalfHours] = {}
    for kind, group, day, seconds in await store.capacity.saved_gpu_seconds(name, _days(whole)):
        kept.setdefault((kind, group), {}).update(halves(day, seconds))
    parts = [await load_allocated_seconds(store, name, _within(span, marks), marks) for _, marks in whole.rest]
    keys = {*kept, *(key for part in parts for key in part)}
    return {key: whole.seconds(kept.get(key, {}), _of(key, parts, whole)) for key in keys}


async def load_touched_seconds(
    store: Store, name: str, span: ReportSpan, whole: Cover, sets: Mapping[NodeKind, Sequence[str]]
) -> dict[NodeKind, list[float]]:
    """Returns the seconds between each two marks in which nodes were at least partly allocated, by set of nodes."""
    of = {node: key for key, nodes in sets.items() for node in nodes}
    kept: dict[NodeKind, dict[int, list[int]]] = {key: {} for key in sets}
    async for node, day, seconds in store.capacity.saved_busy_seconds(name, _days(whole)):
        if node in of:
            mine = kept[of[node]]
            mine[day] = (
                [total + other for total, other in zip(mine[day], seconds, strict=True)] if day in mine else [*seconds]
            )
    found = {}
    for key, nodes in sets.items():
        parts = [
            _seconds(marks, await store.capacity.busy_stretches(name, nodes, _within(span, marks), marks))
            for _, marks in whole.rest
        ]
        found[key] = whole.seconds({at: s for day, mine in kept[key].items() for at, s in halves(day, mine)}, parts)
    return found


def _seconds(marks: range, found: Iterable[Touched]) -> list[float]:
    there = Stretches(marks)
    for one in found:
        there.add_ends(one.began_in, one.count, one.began, ends=False)
        there.add_ends(one.ended_in, one.count, one.ended, ends=True)
    return there.seconds()


def _of(
    key: tuple[str, str], parts: Iterable[Mapping[tuple[str, str], list[float]]], whole: Cover
) -> list[list[float]]:
    return [part.get(key, [0] * (len(marks) - 1)) for part, (_, marks) in zip(parts, whole.rest, strict=True)]


def _days(whole: Cover) -> list[int]:
    return sorted({at // DAY_S * DAY_S for i in whole.known for at in whole.marks[i : i + 2]})


def _within(span: ReportSpan, marks: range) -> ReportSpan:
    return ReportSpan(marks[0], min(marks[-1], span.end), span.now)
