"""Enforces budgets: notifies about spent ones and holds back the jobs of teams whose capped budget is spent."""

from __future__ import annotations

import structlog

from headway.billing import budgets
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.services.billing import notifications
from headway.services.billing.budgets import load_budget_states

log = structlog.get_logger("headway.billing")


async def enforce_budgets(state: AppState, cluster: Cluster, now: int) -> None:
    """Notifies once about each new budget level, and sets or removes the Slurm limit of teams with a capped budget. In
    a period without a stored level (new, or accounting was restored) Slurm is set in any case."""
    store, name = state.store, cluster.name
    found = await load_budget_states(state, cluster, now)
    held_back = await store.budgets.capped_teams(name)
    wanted = budgets.capped(found)
    by_team = {one.team: one for one in found}
    for team in sorted(held_back - by_team.keys()):  # its budget was removed from the file
        if await _hold_team_jobs(state, cluster, team, on=False):
            await store.budgets.record(name, team, 0, "ok", capped=False)
    for one in found:
        level, capped = await store.budgets.get(name, one.team, one.start)
        holds, held_now = one.team in wanted, one.team in held_back
        if (level, capped) == (one.level.value, holds) and holds == held_now:
            continue
        if one.level is not budgets.Level.OK and level != one.level.value:
            await notifications.record_budget_notice(state, cluster, one, now)
        if (holds != held_now or not level) and not await _hold_team_jobs(state, cluster, one.team, on=holds):
            continue
        await store.budgets.record(name, one.team, one.start, one.level.value, capped=holds)


async def _hold_team_jobs(state: AppState, cluster: Cluster, team: str, *, on: bool) -> bool:
    """Sets or removes the Slurm limit that holds back the team's jobs. Returns whether Slurm took it."""
    try:
        await state.backend.usage.hold_team_jobs(cluster, team, on=on)
    except HeadwayError as error:
        log.warning("budget", cluster=cluster.name, team=team, error=error.first_line)
        return False
    return True
