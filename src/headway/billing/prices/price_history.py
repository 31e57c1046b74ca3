"""The history of a cluster's prices: which entries an apply or a teardown adds. Earlier entries stay, so that earlier months
keep their prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headway.domain.billing.ledger import NodePrice, fixed_cost_group
from headway.domain.cluster import Cluster


def current_prices(cluster: Cluster, known: Iterable[NodePrice], since: float) -> list[NodePrice]:
    """Returns prices that apply from `since` on: for each group of the cluster, for each fixed cost, and for those of
    both that the file no longer names. `known` are the prices stored before."""
    found = [
        NodePrice(
            group.name,
            since,
            group.price_usd_per_node_hour,
            group.spot,
            group.min_machines if group.reserved else 0,
        )
        for group in cluster.groups
    ]
    found += [
        NodePrice(fixed_cost_group(name), since, price, reserved=1)
        for name, price in cluster.costs.fixed_usd_per_hour.items()
    ]
    return [*found, *prices_of_removed_groups(known, (row.group for row in found), since)]


def prices_of_removed_groups(known: Iterable[NodePrice], kept: Iterable[str], since: float) -> list[NodePrice]:
    """Returns prices that set the reserved machines to 0 from `since` on, for groups that are not in `kept`: only
    existing machines are paid from then on. A fixed cost ends so."""
    newest, staying = {row.group: row for row in known}, set(kept)
    return [
        replace(row, since=since, reserved=0) for group, row in newest.items() if row.reserved and group not in staying
    ]
