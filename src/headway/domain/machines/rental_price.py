"""The price per hour of machines that clouds rent out, for plans, limits, the ledger and lists alike. Pure.

Not here: what teams pay, which is the price of the group in the cluster file (`billing.prices`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal

from headway.domain.cluster import Cluster, Group
from headway.domain.machines.offer import Offer

_UNKNOWN = Decimal(0)


def rental_price(group: Group | None, *, launched: Decimal = _UNKNOWN, offer: Offer | None = None) -> Decimal:
    """Returns the price of a rented machine, USD an hour: that of its launch; before its launch that of the offer; and if the
    cloud says none, that of the group in the cluster file. `group` None: a head, or a machine that is in no group any
    more. 0: the price is not known."""
    offered = offer.price_usd_per_node_hour if offer else _UNKNOWN
    return launched or offered or (group.price_usd_per_node_hour if group else _UNKNOWN)


def total_price(cluster: Cluster, names: Iterable[str], prices: Mapping[str, Decimal]) -> Decimal:
    """Returns the price of these heads and slots together, USD an hour. `prices`: those of rented machines by name; all
    others have the price of their group in the cluster file."""
    groups = cluster.group_of
    return sum((rental_price(groups.get(name), launched=prices.get(name, _UNKNOWN)) for name in names), _UNKNOWN)


def paid_slots(group: Group, there: Collection[str]) -> tuple[str, ...]:
    """Returns the slots of the group whose machines cost money: those with a machine (`there`), and so many others as the
    group always has. The first `min_machines` slots of an autoscaled group always count."""
    there = frozenset(there)
    if group.idle_s is not None:
        first = frozenset(group.slots[: group.min_machines])
        return tuple(name for name in group.slots if name in there or name in first)
    found = [name for name in group.slots if name in there]
    free = [name for name in group.slots if name not in there]
    return (*found, *free[: max(0, group.min_machines - len(found))])


def owned_slots(cluster: Cluster) -> tuple[str, ...]:
    """Returns the slots that always have a machine, and that is not rented."""
    owned = (group for group in cluster.groups if not (group.provider or cluster.provider).rents_machines)
    return tuple(name for group in owned for name in paid_slots(group, ()))
