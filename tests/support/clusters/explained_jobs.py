"""Nodes, partitions and jobs of a small cluster whose waiting jobs are explained."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from headway.domain.cluster import Cluster, Partition
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState, Reservation
from headway.domain.teams import Budget, GpuHourCap, Team, UserLimits
from headway.jobs.explain.pending_explanation import PendingReason, explain_pending
from headway.jobs.explain.phrases import format_phrase
from headway.jobs.explain.placement_search import ClusterSnapshot
from tests.support.clusters import builders

NOW = 10_000.0
NODES = tuple(f"lab-{leaf}-{place}" for leaf in (1, 2) for place in (1, 2, 3, 4))


def partition(name: str, nodes: tuple[str, ...], max_time_s: int | None, *, default: bool = False) -> Partition:
    return Partition(name, nodes, default, 1, max_time_s, 3600, (), False, 0, ())


def node(name: str, used: int = 0, *states: str, **others: Any) -> NodeState:
    made = builders.node(name, *(states or ("MIXED" if used else "IDLE",)))
    return replace(made, gpus_used=used, cpus_used=16 * used, partitions=("train", "debug"), **others)


def running(number: int, nodes: tuple[str, ...], ends_in_s: int | None, **others: Any) -> JobState:
    fields: dict[str, Any] = {"account": "vision", "nodes": nodes, "node_count": len(nodes), "gpus": 8 * len(nodes)}
    fields |= {"cpus": 128 * len(nodes), "start_time": int(NOW) - 600}
    fields["time_limit_s"] = None if ends_in_s is None else 600 + ends_in_s
    return builders.job(number, **{**fields, **others})


def pending(reason: str, **others: Any) -> JobState:
    fields: dict[str, Any] = {"reason": reason, "account": "vision", "node_count": 1, "gpus": 8, "cpus": 1}
    return builders.job(900, "PENDING", **{**fields, "start_time": 0, "time_limit_s": 7200, **others})


CLUSTER = builders.cluster(
    8,
    0,
    partitions=(partition("train", NODES, None, default=True), partition("debug", NODES[:2], 3600)),
    teams=(
        Team("vision", ("alice",), 1, gpus=24, running_jobs=2, gpu_hours=GpuHourCap(Decimal(100), "week")),
        Team("speech", ("bob",), 1),
        Team("small", ("sue",), 1, budget=Budget("usd", Decimal(20000), "month", 0.8, True)),
        Team("quota", ("carol",), 1, per_user=UserLimits(gpus=12, cpus=400)),
    ),
)


# lab-1-4, and all of leaf 2 but lab-2-4, are in use.
BUSY = (
    *(node(name) for name in NODES[:3]),
    *(node(name, 8) for name in NODES[3:7]),
    node(NODES[7]),
)
RUNNING = (
    running(812, ("lab-1-4",), 14 * 60),
    running(813, ("lab-2-1", "lab-2-2"), 3600, user="bob", account="speech"),
    running(814, ("lab-2-3",), None, user="bob", account="speech"),
)
FULL = tuple(node(name, 8) for name in NODES)
ALL_HELD = (
    running(801, NODES[:4], 1800, gpus=32),
    running(802, NODES[4:6], 14 * 60, gpus=16),
    running(803, NODES[6:], 7000, gpus=16, user="bob", account="speech"),
)


def said(job: JobState, nodes: tuple[NodeState, ...] = BUSY, jobs: tuple[JobState, ...] = RUNNING, **more: Any) -> str:
    found = whole(job, nodes, jobs, **more)
    return format_phrase(found.needs, NOW)


def whole(
    job: JobState,
    nodes: tuple[NodeState, ...] = BUSY,
    jobs: tuple[JobState, ...] = RUNNING,
    *,
    reservations: tuple[Reservation, ...] = (),
    cluster: Cluster = CLUSTER,
) -> PendingReason:
    found = explain_pending(job, ClusterSnapshot.from_readings(cluster, nodes, (*jobs, job), reservations, NOW))
    assert found is not None
    return found
