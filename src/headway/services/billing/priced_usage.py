"""Usage at its price: the time in which nodes were allocated to runs, at the prices that were valid then, in exact USD.
The prices themselves are in `catalog/plans.yaml`, their history is kept by `billing.price_history`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from headway.billing.periods import Period
from headway.billing.prices import price_segments
from headway.billing.prices.price_segments import Segment
from headway.domain.billing.ledger import fixed_cost_name
from headway.services.app_state import AppState
from headway.services.billing.reports.report_scope import BilledCluster
from headway.store.billing.run_sums import NONE, Only, ReportSpan
from headway.store.billing.usage import RunRow, Times, UsageSum

ALL = Only()


class SegmentTotals:
    """Allocated node time per price segment, read from the database once per report. `timed`: with the times for
    goodput."""

    def __init__(self, state: AppState, billed: BilledCluster, only: Only = ALL, *, timed: bool = False) -> None:
        self._state, self._place, self._only, self._timed = state, billed, only, timed
        self._known: dict[tuple[str, int, int], list[UsageSum]] = {}

    async def load_cells(self, segment: Segment) -> list[UsageSum]:
        """Returns the allocations in the segment, summed by the store."""
        key = (segment.group, segment.start, segment.end)
        if key not in self._known:
            span = ReportSpan(segment.start, segment.end, self._place.now)
            only = replace(self._only, group=segment.group or NONE)
            self._known[key] = await self._state.store.usage.unit_seconds(
                self._place.name, span, only=only, timed=self._timed
            )
        return self._known[key]

    async def times_by_team(self, segments: Sequence[Segment]) -> dict[str, Times]:
        """Returns the times of all segments together, by team."""
        found: dict[str, Times] = {}
        for segment in segments:
            for cell in await self.load_cells(segment):
                found[cell.use.team] = found.get(cell.use.team, Times()) + cell.times
        return found

    async def idle_cost_usd(self, segments: Sequence[Segment]) -> Fraction:
        """Returns the cost of allocated but idle time in these segments, in exact USD."""
        cost = Fraction(0)
        for segment in segments:
            for cell in await self.load_cells(segment):
                cost += segment.usd_per_second * Fraction(cell.use.idle_unit_s, cell.use.per_node)
        return cost


async def priced_segments(state: AppState, billed: BilledCluster, period: Period) -> list[Segment]:
    """Returns the period cut by the prices of every group of nodes that ever had one."""
    prices = await state.store.prices.of_cluster(billed.name)
    groups = {row.group for row in prices if not fixed_cost_name(row.group)}
    return await cut_by_prices(state, billed, period, groups)


async def unpriced_segments(state: AppState, billed: BilledCluster, period: Period) -> list[Segment]:
    """Returns the period once for each group that runs were on but that never had a price."""
    known = {row.group for row in await state.store.prices.of_cluster(billed.name)}
    return price_segments.segments([], {*await state.store.usage.groups(billed.name)} - known, period)


async def cut_by_prices(state: AppState, billed: BilledCluster, period: Period, groups: set[str]) -> list[Segment]:
    """Returns the period cut wherever the price of one of these groups changed, group by group."""
    prices = await state.store.prices.of_cluster(billed.name)
    return [segment for segment in price_segments.segments(prices, groups, period) if segment.group in groups]


async def usage_cost(
    state: AppState, billed: BilledCluster, period: Period, only: Only = ALL, by: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Fraction]]:
    """Returns the cost of allocated nodes, as (values of `by`, exact USD), sorted."""
    found: dict[tuple[str, ...], Fraction] = {}
    for segment in await priced_segments(state, billed, period):
        if only.group and only.group != segment.group:
            continue
        narrowed = replace(only, group=segment.group)
        span = ReportSpan(segment.start, segment.end, billed.now)
        for cell in await state.store.usage.unit_seconds(billed.name, span, by, narrowed):
            cost = Fraction(cell.use.unit_s, cell.use.per_node) * segment.usd_per_second
            found[cell.by] = found.get(cell.by, Fraction(0)) + cost
    return sorted(found.items())


async def run_costs(state: AppState, billed: BilledCluster, runs: Sequence[RunRow], within: Period) -> list[Fraction]:
    """Returns the cost of each run within the period, in exact USD. Runs that have not ended count until now."""
    segments = await cut_by_prices(state, billed, within, {run.group for run in runs})

    def cost(run: RunRow, segment: Segment) -> Fraction:
        seconds = min(run.end or billed.now, segment.end) - max(run.start, segment.start)
        return segment.usd_per_second * Fraction(run.units * max(0, seconds), run.per_node)

    return [sum((cost(run, part) for part in segments if part.group == run.group), Fraction(0)) for run in runs]
