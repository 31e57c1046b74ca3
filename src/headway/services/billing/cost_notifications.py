"""Notifications about costs, each sent once by a cluster's alert channels: budgets near or over their limit, and weekly
summaries.

A notification is stored before it is sent, and sent again until the alert manager accepts it, so restarts lose and repeat
nothing."""

from __future__ import annotations

from headway.billing.budget_decisions import BudgetStatus, Level
from headway.billing.periods import last_week, time_zone
from headway.domain.billing.ledger import Notification
from headway.domain.cluster import Cluster
from headway.schemas.billing.budgets import BudgetOut
from headway.schemas.billing.goodput import GoodputOut
from headway.schemas.billing.usage import UsageOut
from headway.services.app_state import AppState
from headway.services.billing.budgets import load_budgets, unit_label
from headway.services.billing.priced_usage import ALL
from headway.services.billing.reports.goodput import load_goodput
from headway.services.billing.reports.report_scope import BilledCluster, ReportScope
from headway.services.billing.reports.usage import load_usage

SUMMARY_DELAY_S = 3600  # after the end of a week, because accounting records come late
MAX_AGE_S = 7 * 86_400  # older ones are dropped unsent
MAX_CAUSES = 3  # in a summary


async def record_budget_notification(state: AppState, cluster: Cluster, status: BudgetStatus, now: int) -> None:
    """Stores a notification that a team's budget is spent or nearly spent, once per level, period and limit. The cluster's
    public event list does not mention it, because not everyone may see the team's usage."""
    spent = f"team {status.team}: {_words(status)}"
    key = f"budget/{status.team}/{status.start}/{status.budget.limit.normalize():f} {status.budget.unit}/{status.level.value}"
    title = (
        f"{cluster.name}: the budget of {status.team} {'is spent' if status.level is Level.OVER else 'is soon spent'}"
    )
    notification = Notification(key, "Budget", "warning", title, spent, now)
    await state.store.notifications.add(cluster.name, notification)


async def record_weekly_summary(state: AppState, cluster: Cluster, now: int) -> None:
    """Stores a summary of the last whole week, once accounting covers it."""
    week = last_week(now, time_zone(cluster.costs.timezone))
    key, store = f"week/{week.name}", state.store
    if now < week.end + SUMMARY_DELAY_S or (await store.ledger_progress.get(cluster.name)).collected_to < week.end:
        return
    if await store.notifications.exists(cluster.name, key) or not await store.machine_lifetimes.between(
        cluster.name, week.start, week.end
    ):
        return
    billed = BilledCluster(cluster.name, cluster, now)
    used = await load_usage(state, billed, week, ["team"], ALL)
    good = await load_goodput(state, ReportScope(billed, week, None))
    text = summary(used, good, await load_budgets(state, billed, week.end))
    title = f"{cluster.name}: week {week.name}"
    await store.notifications.add(cluster.name, Notification(key, "WeeklySummary", "info", title, text, now))


def summary(used: UsageOut, good: GoodputOut, budgets: list[BudgetOut]) -> str:
    """Returns the text of a weekly summary: usage and goodput by team, the largest losses, and what was left of
    budgets."""
    share = {team.team: team.goodput for team in good.teams}
    rows = [(row.by["team"] or "no team", row, share.get(row.by["team"])) for row in used.rows]
    lines = [
        f"{who}: {row.gpu_hours:,.2f} GPU-hours, {row.usd:,.2f} USD{_goodput(part)}"
        for who, row, part in (*rows, ("all", used.total, good.total.goodput))
    ]
    lines += [
        f"lost: {cause.usd:,.2f} USD, {cause.gpu_hours:,.2f} GPU-hours: {cause.what}"
        for cause in good.causes[:MAX_CAUSES]
    ]
    lines += [
        f"budget of {budget.team}: {budget.left:,.2f} of {budget.limit:,.2f} {unit_label(budget.unit)} a {budget.per} were left"
        for budget in budgets
    ]
    if used.total.energy_kwh:
        lines.append(f"energy: {'~' if used.total.energy_estimated else ''}{used.total.energy_kwh:,.1f} kWh")
    return "\n".join([*lines, *(["GPUs are SIMULATED"] if used.simulated else [])])


async def send_pending(state: AppState, cluster: Cluster, now: int) -> None:
    """Sends the stored notifications. Raises Unreachable if the alert manager does not accept them; they are sent again next
    time."""
    pending = await state.store.notifications.pending(cluster.name, now - MAX_AGE_S)
    if pending:
        await state.backend.monitoring.send_alerts(cluster, pending)
        await state.store.notifications.mark_sent(cluster.name, [notification.key for notification in pending], now)


def _goodput(share: float | None) -> str:
    return "" if share is None else f", goodput {100 * share:.1f} %"


def _words(status: BudgetStatus) -> str:
    budget = status.budget
    spent = f"{status.used:,} of {budget.limit:,} {unit_label(budget.unit)} a {budget.per} are used"
    if status.level is Level.OVER:
        return f"{spent}: its jobs wait for the next {budget.per}" if budget.cap else f"{spent}: the budget is spent"
    return spent
