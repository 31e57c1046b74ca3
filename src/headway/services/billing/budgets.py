"""Budgets and GPU-hour caps of teams: their used and remaining parts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, tzinfo
from decimal import Decimal
from fractions import Fraction

from headway.billing import budget_decisions
from headway.billing.budget_decisions import BudgetStatus, Level
from headway.billing.periods import Period, time_zone
from headway.domain.billing.cap_periods import period_end, period_start
from headway.domain.cluster import Cluster
from headway.schemas.billing.budgets import BudgetOut
from headway.services.app_state import AppState
from headway.services.billing.priced_usage import usage_cost
from headway.services.billing.reports.report_scope import BilledCluster
from headway.store.billing.run_sums import Only, ReportSpan

MAX_AGE_S = 10.0


async def load_budget_states(
    state: AppState, cluster: Cluster, now: int, until: int | None = None
) -> list[budget_decisions.BudgetStatus]:
    """Returns what each team has used of its budget in the current period; with `until` (unix seconds), as it was just
    before then."""
    billed = BilledCluster(cluster.name, cluster, now)
    until = now + 1 if until is None else until
    here = datetime.fromtimestamp(until - 1, time_zone(cluster.costs.timezone))
    found = []
    for team in cluster.teams:
        if team.budget is None:
            continue
        start = int(period_start(team.budget.per, here).timestamp())
        period = Period(team.budget.per, start, until)
        used = await (_usd if team.budget.unit == "usd" else _gpu_hours)(state, billed, period, team.name)
        found.append(budget_decisions.budget_status(team.name, team.budget, start, used))
    return found


async def load_cap_usage(state: AppState, cluster: Cluster, now: int) -> dict[str, Fraction]:
    """Returns the GPU-hours that count against each team's cap: those since its usage was last reset. Slurm counts them
    for the team's QOS, which only slurmctld knows; the account's usage in `sshare` decays."""
    billed, since = (
        BilledCluster(cluster.name, cluster, now),
        await state.store.gpu_hour_cap_resets.of_cluster(cluster.name),
    )
    return {
        team.name: await _gpu_hours(state, billed, Period("", int(since.get(team.name, now)), now + 1), team.name)
        for team in cluster.teams
        if team.gpu_hours is not None
    }


async def _usd(state: AppState, billed: BilledCluster, period: Period, team: str) -> Fraction:
    return sum((cost for _, cost in await usage_cost(state, billed, period, Only(teams=(team,)))), Fraction(0))


async def _gpu_hours(state: AppState, billed: BilledCluster, period: Period, team: str) -> Fraction:
    span = ReportSpan(period.start, period.end, billed.now)
    totals = await state.store.usage.totals(billed.name, span, [], Only(teams=(team,)))
    return Fraction(sum(total.gpu_s for total in totals), 3600)


async def load_visible_budgets(state: AppState, billed: BilledCluster, seen: tuple[str, ...] | None) -> list[BudgetOut]:
    """Returns the budgets of the teams `seen` (None: all)."""
    return [budget for budget in await load_budgets(state, billed) if seen is None or budget.team in seen]


async def load_budgets(state: AppState, billed: BilledCluster, until: int | None = None) -> list[BudgetOut]:
    """Returns the budgets of all teams as they are now, or just before `until` (unix seconds)."""
    if billed.cluster is None:
        return []
    found = await load_budget_states(state, billed.cluster, billed.now, until)
    return await _budgets_out(state, billed.cluster, found)


async def cached_budgets(state: AppState, cluster: Cluster) -> list[BudgetOut]:
    """Returns all budgets, at most MAX_AGE_S old, without refreshing the ledger: for pages that many people have open."""
    now = int(state.clock())
    found = await state.cache.get(f"{cluster.name}/budgets", MAX_AGE_S, lambda: load_budget_states(state, cluster, now))
    return await _budgets_out(state, cluster, found)


async def cached_cap_usage(state: AppState, cluster: Cluster) -> dict[str, Fraction]:
    """Returns the same as `load_cap_usage`, at most MAX_AGE_S old."""
    now = int(state.clock())
    return await state.cache.get(f"{cluster.name}/caps", MAX_AGE_S, lambda: load_cap_usage(state, cluster, now))


def spent_or_nearly_spent(found: Iterable[BudgetOut]) -> list[BudgetOut]:
    """Returns the budgets that have reached their warning level."""
    return [budget for budget in found if budget.level != Level.OK.value]


async def _budgets_out(state: AppState, cluster: Cluster, found: Iterable[BudgetStatus]) -> list[BudgetOut]:
    held_back = await state.store.budgets.capped_teams(cluster.name)
    return [
        BudgetOut(
            team=status.team,
            unit=status.budget.unit,
            per=status.budget.per,
            limit=float(status.budget.limit),
            used=float(status.used),
            left=float(status.left),
            warn_at=float(status.budget.limit * Decimal(str(status.budget.warn))),
            level=status.level.value,
            cap=status.budget.cap,
            held_back=status.team in held_back,
            start=status.start,
            end=_end(status, time_zone(cluster.costs.timezone)),
        )
        for status in found
    ]


def _end(status: BudgetStatus, where: tzinfo) -> int:
    return int(period_end(status.budget.per, datetime.fromtimestamp(status.start, where)).timestamp())


def unit_label(unit: str) -> str:
    """Returns a budget's unit as a word for users."""
    return "USD" if unit == "usd" else "GPU-hours"
