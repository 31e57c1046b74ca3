"""Enforces budgets: notifies about spent ones and holds back the jobs of teams whose capped budget is spent."""

from __future__ import annotations

import structlog

from headway.billing import budget_decisions
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.services.billing import cost_notifications
from headway.services.billing.budgets import load_budget_states

log = structlog.get_logger("headway.billing")


async def enforce_budgets(state: AppState, cluster: Cluster, now: int) -> None:
    """Notifies once about each new budget level, and sets or removes the Slurm limit of teams with a capped budget. In
    a period without a stored level (new, or accounting was restored) Slurm is set in any case."""
    store, name = state.store, cluster.name
    found = await load_budget_states(state, cluster, now)
    held_back = await store.budgets.capped_teams(name)
    capped_teams = budget_decisions.capped(found)
    by_team = {status.team: status for status in found}
    for team in sorted(held_back - by_team.keys()):  # its budget was removed from the file
        if await _hold_team_jobs(state, cluster, team, on=False):
            await store.budgets.record(name, team, 0, "ok", capped=False)
    for status in found:
        level, capped = await store.budgets.get(name, status.team, status.start)
        holds, held_now = status.team in capped_teams, status.team in held_back
        if (level, capped) == (status.level.value, holds) and holds == held_now:
            continue
        if status.level is not budget_decisions.Level.OK and level != status.level.value:
            await cost_notifications.record_budget_notification(state, cluster, status, now)
        if (holds != held_now or not level) and not await _hold_team_jobs(state, cluster, status.team, on=holds):
            continue
        await store.budgets.record(name, status.team, status.start, status.level.value, capped=holds)


async def _hold_team_jobs(state: AppState, cluster: Cluster, team: str, *, on: bool) -> bool:
    """Sets or removes the Slurm limit that holds back the team's jobs. Returns whether Slurm took it."""
    try:
        await state.backend.usage.hold_team_jobs(cluster, team, on=on)
    except HeadwayError as error:
        log.warning("budget", cluster=cluster.name, team=team, error=error.first_line)
        return False
    return True
