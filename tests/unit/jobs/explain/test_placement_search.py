"""Why no nodes are free for a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.domain.machines.gpu_parts import GpuParts
from headway.domain.slurm.nodes_and_jobs import Reservation
from headway.jobs.explain.pending_explanation import explain_pending
from headway.jobs.explain.phrases import format_phrase
from headway.jobs.explain.placement_search import ClusterSnapshot
from tests.support.clusters.explained_jobs import (
    ALL_HELD,
    CLUSTER,
    FULL,
    NODES,
    NOW,
    node,
    pending,
    running,
    said,
)


def test_resources_reason_counts_free_nodes_under_one_leaf_switch() -> None:
    got = said(pending("Resources", node_count=4, gpus=32, switches=1))
    assert got == (
        "needs 4 nodes under one leaf switch with 8 GPUs each free; 3 are free under leaf1; "
        "job 812 of alice ends in 14 min at the latest"
    )


def test_resources_reason_names_the_last_job_that_must_end() -> None:
    assert (
        said(pending("Resources", node_count=4, gpus=32))
        == "enough nodes are free: it should start in the next scheduling cycle"
    )
    got = said(pending("Resources", node_count=6, gpus=48), FULL, ALL_HELD)
    assert got == (
        "needs 6 nodes with 8 GPUs each free; none is free; 2 jobs must end, the last: "
        "job 801 of alice ends in 30 min at the latest"
    )


def test_resources_reason_names_nodes_out_of_service() -> None:
    nodes = (node("lab-1-1", 6), node("lab-1-2", 0, "IDLE", "DRAIN", reason="XID 79"))
    part = running(5, ("lab-1-1",), 40, gpus=6, cpus=96)
    got = said(pending("Resources", gpus=4), nodes, (part,))
    assert got == (
        "needs 1 node with 4 GPUs free; none is free; job 5 of alice ends in 40 s at the latest; "
        "lab-1-2 is out of service: XID 79"
    )


def test_resources_reason_says_that_no_node_has_enough_gpus() -> None:
    got = said(pending("Resources", gpus=16))
    assert got == "needs 1 node with 16 GPUs free; no node of train has that"


def test_resources_reason_respects_requested_features_and_gpu_type() -> None:
    """Half of them are of another group, and free."""
    [main] = CLUSTER.groups
    groups = (replace(main, name="gpu", slots=NODES[:4]), replace(main, name="cheap", slots=NODES[4:], spot=True))
    two, held = replace(CLUSTER, groups=groups), (running(801, NODES[:4], 1800, gpus=32),)
    kinds = {name: ("h100",) if name in NODES[:4] else ("l40s",) for name in NODES}
    nodes = tuple(node(name, 8 if name in NODES[:4] else 0, gpu_types=kinds[name]) for name in NODES)
    busy = " with 8 GPUs free; none is free; job 801 of alice ends in 30 min at the latest"
    there = "enough nodes are free: it should start in the next scheduling cycle"
    for features, expected in {
        "gpu": f"needs 1 node of gpu{busy}", "gpu&leaf1": f"needs 1 node of gpu&leaf1{busy}", "spot": there,
        "gpu|spot": there, "gpu&spot": "needs 1 node of gpu&spot with 8 GPUs free; no node of train has that",
        "[gpu|spot]": "", "spot*2&gpu": "", "": there,
    }.items():  # fmt: skip
        assert said(pending("Resources", features=features), nodes, held, cluster=two) == expected, features
    for asks, expected in {
        "gres/gpu:h100:8": f"needs 1 node of h100{busy}", "gres/gpu:H100=8": f"needs 1 node of h100{busy}",
        "cpu=2,gres/gpu:l40s:8": there, "gres:gpu:8": there, "gres/gpu": there,
    }.items():  # fmt: skip
        assert said(pending("Resources", more={"tres-per-node": asks}), nodes, held, cluster=two) == expected, asks
    world = ClusterSnapshot.from_readings(two, nodes, held, (), NOW)
    jobs = [pending("Resources", features=one) for one in ("gpu", "spot")]
    assert len({format_phrase(found.needs, NOW) for job in jobs if (found := explain_pending(job, world))}) == 2, (
        "one world, two answers"
    )


@pytest.mark.parametrize(
    ("parts", "asks", "expected"),
    [
        (GpuParts(shards=4), "gres/shard:5", "needs 5 shards of one GPU, which has 4: it can never start"),
        (GpuParts(shards=4), "cpu=1,gres/shard:h100=8", "needs 8 shards of one GPU, which has 4: it can never start"),
        (GpuParts(mps=True), "gres:mps:120", "needs 120 % by MPS of one GPU, which has 100: it can never start"),
        (GpuParts(shards=4), "gres/shard:4", ""),
        (GpuParts(shards=4), "gres/shard", ""),
        (GpuParts(), "gres/shard:4", ""),
    ],
)
def test_shares_of_a_gpu_are_not_looked_for_on_nodes_and_too_many_are_named(
    parts: GpuParts, asks: str, expected: str
) -> None:
    [main] = CLUSTER.groups
    cluster = replace(CLUSTER, groups=(replace(main, parts=parts),))
    assert said(pending("Resources", more={"tres-per-node": asks}), cluster=cluster) == expected


def test_resources_reason_counts_cpus_per_gpu() -> None:
    nodes = (replace(node("lab-1-1"), cpus_used=100, states=("MIXED",)),)
    hog = running(5, ("lab-1-1",), 60, gpus=0, cpus=100)
    got = said(pending("Resources", gpus=8, more={"cpus-per-tres": "gres/gpu:16"}), nodes, (hog,))
    assert "none is free; job 5 of alice ends in 60 s" in got


def test_resources_reason_names_spare_and_reserved_nodes() -> None:
    spare = replace(node("lab-2-1"), reservation="headway_spares")
    nodes = (node("lab-1-1"), spare)
    asks = pending("Resources", node_count=2, gpus=16)
    assert said(asks, nodes, ()) == (
        "needs 2 nodes with 8 GPUs each free; only 1 node of train has that; lab-2-1 is kept as a spare"
    )
    course = Reservation("course", ("lab-2-1",), ("bob",), (), 9000, 17_200)
    got = said(asks, (nodes[0], replace(spare, reservation="course")), (), reservations=(course,))
    assert got.endswith("only 1 node of train has that; lab-2-1 is reserved by course, which ends in 2 h")


def test_exclusive_job_needs_whole_free_nodes() -> None:
    nodes = (node("lab-1-1", 2), node("lab-1-2", 8))
    jobs = (running(5, ("lab-1-1",), 40, gpus=2, cpus=32), running(6, ("lab-1-2",), 90, gpus=8))
    mine = pending("Resources", gpus=0, more={"oversubscribe": "none"})
    got = said(mine, nodes, jobs)
    assert got == "needs 1 whole node free; none is free; job 5 of alice ends in 40 s at the latest"
    assert said(pending("Resources", gpus=0, more={"oversubscribe": "none"}), (node("lab-1-1"),), ()).startswith(
        "enough nodes are free"
    )
