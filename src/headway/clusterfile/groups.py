"""Node groups of a cluster file: treats the short form (plan, nodes) and the long form (groups) alike."""

from __future__ import annotations

from decimal import Decimal

from headway.catalog.mig_profiles import lay_out
from headway.catalog.providers import PROVIDERS
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.clusterfile.models.groups import GroupPart
from headway.domain.cluster import MAIN_GROUP, Group, Plan
from headway.domain.machines.gpu_parts import GpuParts


def parts_of(file: ClusterFile) -> dict[str, GroupPart]:
    """Returns the groups by name; the short form is one group named MAIN_GROUP."""
    if file.groups:
        return dict(file.groups)
    return {
        MAIN_GROUP: GroupPart(
            plan=file.plan or "",
            nodes=file.nodes or 0,
            max=file.max,
            spares=file.spares,
            mig=file.mig,
            shards=file.shards,
            mps=file.mps,
        )
    }


def min_nodes(part: GroupPart) -> int:
    """Returns the least number of nodes of a group."""
    return (part.min or 0) if part.idle is not None else (part.nodes or 0)


def max_nodes(part: GroupPart) -> int:
    """Returns the number of slots of a group, spares not counted."""
    return max(part.max or 0, min_nodes(part))


def total_slots(file: ClusterFile) -> int:
    """Returns the number of slots of the whole cluster, spares included."""
    return sum(max_nodes(part) + part.spares for part in parts_of(file).values())


def listed_slots(file: ClusterFile) -> int:
    """Returns the number of slots whose machines are of the cluster's own provider, spares included."""
    return sum(max_nodes(part) + part.spares for part in parts_of(file).values() if part.provider is None)


def build_group(name: str, part: GroupPart, plan: Plan, slots: tuple[str, ...]) -> Group:
    """Returns the resolved group."""
    price = plan.price_usd_per_node_hour if part.price is None else Decimal(str(part.price))
    return Group(
        name=name,
        plan=plan,
        nodes=min_nodes(part),
        most=max_nodes(part),
        spares=part.spares,
        slots=slots,
        idle_s=part.idle,
        spot=part.spot,
        on_demand_fallback=part.spot_fallback is not None,
        reserved=part.reserved,
        price_usd_per_node_hour=price,
        parts=GpuParts(lay_out(plan, part.mig), part.shards or 0, part.mps),
        features=tuple(dict.fromkeys(part.features)),
        weight=part.weight,
        provider=PROVIDERS[part.provider] if part.provider else None,
        queue_time_s=part.queue_time or 0,
        max_usd_per_hour=None if part.usd_per_hour is None else Decimal(str(part.usd_per_hour)),
    )
