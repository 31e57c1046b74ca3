"""Costs by day with the forecast for the month, the months before, and the burn-down of budgets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from headway.billing import cluster_invoice
from headway.billing.money import apportion, cents
from headway.billing.periods import Period, days, previous_month, time_zone
from headway.billing.prices import price_segments
from headway.billing.prices.price_segments import Segment
from headway.billing.spending import Step, forecast, spent_at
from headway.domain.billing.ledger import DAY_S, MachineLifetime
from headway.schemas.billing.budgets import BudgetOut
from headway.services.app_state import AppState
from headway.services.billing.budgets import load_visible_budgets
from headway.services.billing.monthly_bill import load_bill
from headway.services.billing.priced_usage import priced_segments, usage_cost
from headway.services.billing.reports.report_scope import BilledCluster, ReportScope
from headway.store.billing.run_sums import Only

MONTHS = 6  # of the comparison
MAX_AGE_S = 60.0
MAX_DAILY_STEPS = 100  # a longer period has a step for each week


@dataclass(frozen=True, slots=True)
class MonthSum:
    """The sum of a month in cents. `change`: relative to the month before, None if that month had no costs."""

    month: Period
    cents: int
    change: float | None
    over: bool


@dataclass(frozen=True, slots=True)
class Spending:
    """The costs of a month. `of_invoice`: costs of all nodes, whose days sum to the invoice; otherwise the price of the nodes
    that were allocated to the teams that the person may see. `days` have cents, and of those the cents that were allocated
    to jobs; the day that is not over counts up to now. `before` are the days of the month before."""

    of_invoice: bool
    days: tuple[tuple[Step, int, int], ...]
    before: tuple[Step, ...]
    total_cents: int
    allocated_cents: int
    correction_cents: int
    forecast_cents: int | None  # None once the month is over, and before it begins
    months: tuple[MonthSum, ...]


@dataclass(frozen=True, slots=True)
class BurnDown:
    """A budget and how it was used up, in steps of days or weeks. `forecast` is the amount at the end of its period;
    `spent_at` is when it will be spent, None if not within the period."""

    budget: BudgetOut
    steps: tuple[Step, ...]
    forecast: float
    spent_at: int | None


async def load_spending(state: AppState, scope: ReportScope) -> Spending:
    """Returns the costs of the month by day, with the forecast and the months before."""
    billed, month, seen = scope.billed, scope.month, scope.visible_teams
    where = time_zone(billed.costs.timezone)
    allocated = await _allocated_by_day(state, billed, month, seen)
    steps, correction = allocated, 0
    if seen is None:
        steps = await _nodes_by_day(state, billed, month)
        invoice = (await load_bill(state, billed, month)).chargeback.invoice
        correction = invoice.correction_cents
        total = invoice.total_cents - correction
    else:
        total = cents(_sum(steps))
    exact = [step.amount for step in steps]
    by_day = apportion(total if any(exact) else 0, exact) if exact else []
    earlier = previous_month(month, where)
    before: Sequence[Step] = ()
    if earlier is not None and seen is None:
        before = await _nodes_by_day(state, billed, earlier)
    elif earlier is not None:
        before = await _allocated_by_day(state, billed, earlier, seen)
    at_end = None  # the forecast
    if month.start <= billed.now < month.end and any(exact):
        since = await _first_cost(state, billed)
        at_end = cents(forecast(steps, billed.now, month.end, since, before))
    return Spending(
        of_invoice=seen is None,
        days=tuple(
            (step, amount, min(amount, cents(used.amount)))
            for step, amount, used in zip(steps, by_day, allocated, strict=True)
        ),
        before=tuple(before) if _sum(before) else (),
        total_cents=total,
        allocated_cents=cents(_sum(allocated)),
        correction_cents=correction,
        forecast_cents=at_end,
        months=await _months(state, scope, total + correction),
    )


async def _months(state: AppState, scope: ReportScope, total_cents: int) -> tuple[MonthSum, ...]:
    """Returns the month, whose sum is known, and those before it, the latest first, without months before the first
    costs."""
    billed, where = scope.billed, time_zone(scope.billed.costs.timezone)
    found = [(scope.month, total_cents)]
    month = previous_month(scope.month, where)
    while month is not None and len(found) <= MONTHS:
        found.append((month, await _month_cents(state, scope, month)))
        month = previous_month(month, where)
    while found and not found[-1][1]:
        found.pop()
    if not found:
        return ()
    sums = [amount for _, amount in found]
    return tuple(
        MonthSum(period, amount, amount / last - 1 if last else None, period.end <= billed.now)
        for (period, amount), last in zip(found, [*sums[1:], 0], strict=True)
    )[:MONTHS]


async def _month_cents(state: AppState, scope: ReportScope, month: Period) -> int:
    billed, seen = scope.billed, scope.visible_teams

    async def load() -> int:
        if seen is None:
            return (await load_bill(state, billed, month)).chargeback.invoice.total_cents
        costs = await usage_cost(state, billed, month, Only(teams=seen))
        return cents(sum((cost for _, cost in costs), Fraction(0)))

    whose = "all teams" if seen is None else ",".join(sorted(seen))
    return await state.cache.get(f"{billed.name}/month sum/{month.name}/{whose}", MAX_AGE_S, load)


async def _allocated_by_day(
    state: AppState, billed: BilledCluster, month: Period, seen: tuple[str, ...] | None
) -> list[Step]:
    """Returns the price of the nodes that were allocated to runs of these teams (None: all), by day."""
    spans = _days(billed, month)
    key = f"{billed.name}/allocated by day/{month.start}/{len(spans)}"
    by_team = await state.cache.get(key, MAX_AGE_S, lambda: _costs_by_team(state, billed, spans))
    return [
        Step(start, end, sum((usd for team, usd in costs.items() if seen is None or team in seen), Fraction(0)))
        for start, end, costs in by_team
    ]


async def _costs_by_team(
    state: AppState, billed: BilledCluster, spans: Sequence[tuple[int, int]]
) -> list[tuple[int, int, dict[str, Fraction]]]:
    """Returns the price of the nodes that were allocated to each team in each span. The spans follow one another."""
    if not spans:
        return []
    segments = await priced_segments(state, billed, Period("", spans[0][0], spans[-1][1]))
    edges = sorted({edge for part in (*spans, *((one.start, one.end) for one in segments)) for edge in part})
    by_group: dict[str, list[Segment]] = {}
    for segment in segments:
        by_group.setdefault(segment.group, []).append(segment)
    costs: list[dict[str, Fraction]] = [{} for _ in spans]
    starts = [start for start, _ in spans]
    for use in await state.store.usage.by_span(billed.name, list(pairwise(edges)), billed.now):
        price = next((one for one in by_group.get(use.group, ()) if one.start <= use.start < one.end), None)
        if price is not None:
            mine = costs[bisect_right(starts, use.start) - 1]
            cost = Fraction(use.unit_s, use.per_node) * price.usd_per_second
            mine[use.team] = mine.get(use.team, Fraction(0)) + cost
    return [(start, end, cost) for (start, end), cost in zip(spans, costs, strict=True)]


async def _first_cost(state: AppState, billed: BilledCluster) -> int:
    """Returns when the cluster could cost something for the first time: its first machine, or the first price that is billed
    without machines."""
    began = await state.store.machine_lifetimes.first_began(billed.name)
    prices = await state.store.prices.of_cluster(billed.name)
    starts = [int(row.since) for row in prices if row.reserved]
    return min(starts if began is None else [began, *starts], default=0)


async def _nodes_by_day(state: AppState, billed: BilledCluster, month: Period) -> list[Step]:
    """Returns the costs of the invoice by day."""
    lives = await state.store.machine_lifetimes.between(billed.name, month.start, month.end)
    prices = await state.store.prices.of_cluster(billed.name)
    groups = {life.group for life in lives} | {row.group for row in prices if row.reserved}
    found = []
    for start, end in _days(billed, month):
        there = [life for life in lives if life.began < end and (not life.ended or life.ended > start)]
        segments = price_segments.segments(prices, groups, Period("", start, end))
        priced = [segment for segment in segments if segment.group in groups]
        found.append(Step(start, end, _nodes_cost(priced, there, billed.now)))
    return found


def _nodes_cost(segments: Sequence[Segment], lives: Sequence[MachineLifetime], now: int) -> Fraction:
    cost = Fraction(0)
    for segment in segments:
        here = [life for life in lives if life.group == segment.group]
        if segment.reserved:
            nodes = cluster_invoice.metered(here, (), [segment], now)
            seconds = sum(end - start for one in nodes for start, end in one.there)
            seconds += cluster_invoice.unused(segment, nodes, now)
        else:
            end = min(segment.end, now)
            seconds = sum(max(0, min(life.ended or end, end) - max(life.began, segment.start)) for life in here)
        cost += segment.usd_per_second * seconds
    return cost


def _days(billed: BilledCluster, period: Period) -> list[tuple[int, int]]:
    """Returns the days of the period that have begun."""
    every = days(period.start, period.end, time_zone(billed.costs.timezone))
    return [(start, end) for start, end in every if start <= billed.now]


async def load_burn_downs(state: AppState, billed: BilledCluster, seen: tuple[str, ...] | None) -> list[BurnDown]:
    """Returns how the budgets of the teams `seen` (None: all) were used up in their current periods."""
    found = []
    for budget in await load_visible_budgets(state, billed, seen):
        steps = await _used(state, billed, budget)
        end, limit = budget.end, Fraction(str(budget.limit))
        found.append(
            BurnDown(
                budget,
                tuple(steps),
                round(float(forecast(steps, billed.now, end)), 2),
                spent_at(steps, limit, billed.now, end),
            )
        )
    return found


async def _used(state: AppState, billed: BilledCluster, budget: BudgetOut) -> list[Step]:
    """Returns what the team used of its budget, by day, or by week in a long period."""
    key = f"{billed.name}/used by day/{budget.per}/{budget.start}/{budget.unit}"
    by_team = await state.cache.get(key, MAX_AGE_S, lambda: _used_by_team(state, billed, budget))
    return [Step(start, end, used.get(budget.team, Fraction(0))) for start, end, used in by_team]


async def _used_by_team(
    state: AppState, billed: BilledCluster, budget: BudgetOut
) -> list[tuple[int, int, dict[str, Fraction]]]:
    spans = _steps(billed, Period(budget.per, budget.start, budget.end))
    if budget.unit == "usd":
        return await _costs_by_team(state, billed, spans)
    used: dict[int, dict[str, Fraction]] = {start: {} for start, _ in spans}
    for use in await state.store.usage.by_span(billed.name, spans, billed.now):
        mine = used[use.start]
        mine[use.team] = mine.get(use.team, Fraction(0)) + Fraction(use.gpu_s, 3600)
    return [(start, end, used[start]) for start, end in spans]


def _steps(billed: BilledCluster, period: Period) -> list[tuple[int, int]]:
    """Returns the days of the period that have begun, or its weeks if the period is long."""
    if period.end - period.start <= MAX_DAILY_STEPS * DAY_S:
        return _days(billed, period)
    where = time_zone(billed.costs.timezone)
    found, at = [], period.start
    while at < period.end and at <= billed.now:
        following = int((datetime.fromtimestamp(at, where) + timedelta(days=7)).timestamp())
        found.append((at, min(following, period.end)))
        at = following
    return found


def _sum(steps: Sequence[Step]) -> Fraction:
    return sum((step.amount for step in steps), Fraction(0))
