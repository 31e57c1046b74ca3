"""The limit `cost.usd_per_hour`: whether a changed file keeps the cluster's cost per hour within it."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.errors import Conflict
from headway.services.app_state import AppState

COST_LIMIT_FIELD = "cost.usd_per_hour"


async def cost_limit_conflict(state: AppState, before: Cluster | None, after: Cluster) -> Conflict | None:
    """Returns the error if `after` would exceed its limit: the machines that it always runs, plus those that its
    scaling groups run now. Returns None if it does not, or if it requests no more always-on machines than `before`
    (then power saving keeps the limit)."""
    limit = after.max_usd_per_hour
    if before is None or limit is None or after.min_usd_per_hour <= before.min_usd_per_hour:
        return None
    scaling = [group for group in after.groups if group.idle_s is not None]
    if not scaling:
        return None  # a fixed cost above the limit is a fault of the file
    machines = {machine.name for machine in await state.backend.lifecycle.machines(before)}
    there = {group.name: len(machines & set(group.slots)) for group in scaling}
    # Machines in a group's first `min_machines` slots are counted as always on.
    more = {
        group.name: group.price_usd_per_node_hour * len(machines & set(group.slots[group.min_machines :]))
        for group in scaling
    }
    total = after.min_usd_per_hour + sum(more.values())
    if total <= limit:
        return None
    run = " and ".join(f"{there[name]} nodes of {name}" for name, usd in more.items() if usd)
    cost = f"an hour of {after.name} would cost {total:.2f} USD, and {COST_LIMIT_FIELD} is {limit.normalize():f}"
    return Conflict(
        f"{cost}: {run} run for jobs now",
        hint=f"wait until these jobs have ended (headway queue {after.name}), request fewer nodes, or raise {COST_LIMIT_FIELD}",
    )
