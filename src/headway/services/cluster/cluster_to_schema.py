"""Converts a cluster with its live figures to the schema of the API. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from headway.domain.cluster import MAIN_GROUP, Cluster, Group
from headway.schemas.clusters import ClusterOut
from headway.services.read_model.snapshot import Snapshot
from headway.store import ClusterRow


def summary_of(cluster: Cluster) -> dict[str, Any]:
    """Returns what lists show of a cluster; it is stored in the cluster's row. Prices of rented machines are left out: the
    cloud says them."""
    return {
        "provider": cluster.provider.name,
        "image": cluster.image,
        "slurm_version": cluster.slurm_version,
        "plan": cluster.plan_names,
        "gpu_type": cluster.largest_plan.gpu_type,
        "nodes": cluster.nodes,
        "spares": cluster.spares,
        "gpus": cluster.gpus,
        "simulated_gpus": cluster.simulated_gpus,
        "price_usd_per_hour": "" if cluster.rents_machines else f"{cluster.min_usd_per_hour:.2f}",
        "groups": [
            {
                "name": group.name,
                "plan": group.plan.name,
                "nodes": group.nodes,
                "max": group.most,
                "spares": group.spares,
                "idle_s": group.idle_s,
                "spot": group.spot,
                "price_usd_per_node_hour": _file_price(cluster, group),
            }
            for group in cluster.groups
        ],
    }


def _file_price(cluster: Cluster, group: Group) -> str:
    rents = (group.provider or cluster.provider).rents_machines
    return "" if rents else f"{group.price_usd_per_node_hour:.2f}"


def cluster_out(row: ClusterRow, snapshot: Snapshot) -> ClusterOut:
    """Returns a cluster's row and live figures in the form of the API. A ready cluster with failed nodes or stale
    figures is degraded."""
    known = {"provider": "", "image": "", "slurm_version": "", "plan": "", "gpu_type": ""}
    figures: dict[str, Any] = {"nodes": 0, "spares": 0, "gpus": 0, "simulated_gpus": False}
    state = row.state
    if state == "ready" and (snapshot.stale or snapshot.has_failed_nodes):
        state = "degraded"
    groups = [{**group, "machines": _machines(row.name, group, snapshot)} for group in row.summary.get("groups", ())]
    return ClusterOut.model_validate(
        {
            **known,
            **figures,
            **row.summary,
            "groups": groups,
            "price_usd_per_hour": _price_now(row.summary.get("price_usd_per_hour", ""), groups),
            "name": row.name,
            "state": state,
            "gpus_used": snapshot.gpus_used,
            "jobs_running": snapshot.counts[0],
            "jobs_pending": snapshot.counts[1],
            "created_at": row.created_at,
            "as_of": snapshot.as_of,
            "stale": snapshot.stale,
            "drift": row.drift,
            "origin": row.document.get("origin"),
        }
    )


def _machines(cluster: str, group: Mapping[str, Any], snapshot: Snapshot) -> int:
    """Returns the number of a group's machines, counted by name, because only the cluster's file lists its slots."""
    before = cluster if group["name"] == MAIN_GROUP else f"{cluster}-{group['name']}"
    slot = re.compile(rf"{re.escape(before)}-\d+-\d+")
    return sum(slot.fullmatch(machine.name) is not None for machine in snapshot.machines)


def _price_now(price: str, groups: Iterable[Mapping[str, Any]]) -> str:
    """Returns the price including the machines beyond the number that the file requests, which automatically scaling
    groups have; "" without a price."""
    if not price:
        return ""
    more = (
        Decimal(group["price_usd_per_node_hour"]) * max(0, group["machines"] - group["nodes"] - group["spares"])
        for group in groups
    )
    extra = sum(more, Decimal(0))
    return f"{Decimal(price) + extra:.2f}" if extra else price
