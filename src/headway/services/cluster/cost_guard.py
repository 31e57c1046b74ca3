"""cost.usd_per_hour: whether what a file asks for leaves room for the machines that run for jobs now."""

from __future__ import annotations

from decimal import Decimal

from headway.domain.cluster import Cluster
from headway.errors import Conflict
from headway.services.context import AppState

FIELD = "cost.usd_per_hour"


async def over_limit(state: AppState, before: Cluster | None, after: Cluster) -> Conflict | None:
    """What stops `after` from taking the place of `before`: with more machines that always run, and those that groups which
    scale by themselves have now, an hour would cost more than the limit. None where no more is asked for: then the power
    saving keeps within it."""
    limit = after.most_usd_per_hour
    if before is None or limit is None or _always(after) <= _always(before):
        return None
    scaling = [group for group in after.groups if group.idle_s is not None]
    if not scaling:
        return None  # the file itself was refused
    machines = {machine.name for machine in await state.work.machines(before)}
    there = {group.name: len(machines & set(group.slots)) for group in scaling}
    # The first slots of each always have a machine, whoever else has one.
    more = {
        group.name: group.price_usd_per_node_hour * len(machines & set(group.slots[group.wanted :]))
        for group in scaling
    }
    total = _always(after) + sum(more.values())
    if total <= limit:
        return None
    run = " and ".join(f"{there[name]} nodes of {name}" for name, usd in more.items() if usd)
    return Conflict(
        f"an hour of {after.name} would cost {total:.2f} USD, and {FIELD} is {limit.normalize():f}: {run} run for jobs now",
        hint=f"wait until those have ended (headway queue {after.name}), ask for fewer nodes, or raise {FIELD}",
    )


def _always(cluster: Cluster) -> Decimal:
    """An hour of the nodes and spares that always run, in USD."""
    return sum((group.price_usd_per_node_hour * group.wanted for group in cluster.groups), Decimal(0))
