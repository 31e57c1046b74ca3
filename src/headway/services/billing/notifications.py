"""What the ledger tells people by the alert channels of a cluster, each thing once: a budget that comes to its end, and a
summary of each week. What is to be told is written down first and handed over until somebody takes it, so that a server
that dies loses nothing and says nothing twice."""

from __future__ import annotations

from headway.billing.budgets import Level, Standing
from headway.billing.periods import last_week, zone
from headway.domain.billing import News
from headway.domain.cluster import Cluster
from headway.schemas.billing import BudgetOut, GoodputOut, UsageOut
from headway.services.billing.budgets import load_budgets, unit_label
from headway.services.billing.goodput import load_goodput
from headway.services.billing.pricing import ALL
from headway.services.billing.report_scope import BilledCluster, ReportScope
from headway.services.billing.usage import load_usage
from headway.services.context import AppState

LATE_S = 3600  # after the end of a week: records come late
OLD_S = 7 * 86_400  # what nobody took for so long is no news any more
MOST_CAUSES = 3


async def record_budget_notice(state: AppState, cluster: Cluster, one: Standing, now: int) -> None:
    """Of a budget that is spent, or soon will be. One whose limit was changed is another. What everybody sees of a cluster's
    page says nothing of it: there who may know what the team has used finds a note of its own."""
    spent = f"team {one.team}: {_words(one)}"
    key = f"budget/{one.team}/{one.start}/{one.budget.limit.normalize():f} {one.budget.unit}/{one.level.value}"
    title = f"{cluster.name}: the budget of {one.team} {'is spent' if one.level is Level.OVER else 'is soon spent'}"
    news = News(key, "Budget", "warning", title, spent, now)
    await state.store.notifications.add(cluster.name, news)


async def record_weekly_summary(state: AppState, cluster: Cluster, now: int) -> None:
    """A summary of the last whole week, once accounting has told all of it."""
    week = last_week(now, zone(cluster.costs.timezone))
    key, store = f"week/{week.name}", state.store
    if now < week.end + LATE_S or (await store.ledger_progress.get(cluster.name)).collected_to < week.end:
        return
    if await store.notifications.exists(cluster.name, key) or not await store.machine_lives.between(
        cluster.name, week.start, week.end
    ):
        return
    billed = BilledCluster(cluster.name, cluster, now)
    used = await load_usage(state, billed, week, ["team"], ALL)
    good = await load_goodput(state, ReportScope(billed, week, None))
    text = summary(used, good, await load_budgets(state, billed, week.end))
    title = f"{cluster.name}: week {week.name}"
    await store.notifications.add(cluster.name, News(key, "WeeklySummary", "info", title, text, now))


def summary(used: UsageOut, good: GoodputOut, budgets: list[BudgetOut]) -> str:
    """The figures of `headway usage` and `goodput`, a line each, and what was left of budgets at the end."""
    share = {one.team: one.goodput for one in good.teams}
    rows = [(row.by["team"] or "no team", row, share.get(row.by["team"])) for row in used.rows]
    lines = [
        f"{who}: {row.gpu_hours:,.2f} GPU-hours, {row.usd:,.2f} USD{_goodput(part)}"
        for who, row, part in (*rows, ("all", used.total, good.total.goodput))
    ]
    lines += [
        f"lost: {one.usd:,.2f} USD, {one.gpu_hours:,.2f} GPU-hours: {one.what}" for one in good.causes[:MOST_CAUSES]
    ]
    lines += [
        f"budget of {one.team}: {one.left:,.2f} of {one.limit:,.2f} {unit_label(one.unit)} a {one.per} were left"
        for one in budgets
    ]
    if used.total.energy_kwh:
        lines.append(f"energy: {'~' if used.total.energy_estimated else ''}{used.total.energy_kwh:,.1f} kWh")
    return "\n".join([*lines, *(["GPUs are SIMULATED"] if used.simulated else [])])


async def send_pending(state: AppState, cluster: Cluster, now: int) -> None:
    """Raises Unreachable where nobody takes it: it is handed over again next time."""
    news = await state.store.notifications.pending(cluster.name, now - OLD_S)
    if news:
        await state.work.tell(cluster, news)
        await state.store.notifications.mark_sent(cluster.name, [one.key for one in news], now)


def _goodput(share: float | None) -> str:
    return "" if share is None else f", goodput {100 * share:.1f} %"


def _words(one: Standing) -> str:
    budget = one.budget
    spent = f"{one.used:,} of {budget.limit:,} {unit_label(budget.unit)} a {budget.per} are used"
    if one.level is Level.OVER:
        return f"{spent}: its jobs wait for the next {budget.per}" if budget.cap else f"{spent}: the budget is spent"
    return spent
