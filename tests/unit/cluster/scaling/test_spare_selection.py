"""Which nodes are spares."""

from __future__ import annotations

from dataclasses import replace

from headway.cluster.scaling.spare_selection import spares_to_reserve
from headway.domain.slurm.nodes_and_jobs import NodeState
from tests.support.clusters.builders import cluster, node

LAB = cluster()  # lab-1-[1-4], spare lab-2-1
SPARE = frozenset({"lab-2-1"})


def world(**changed: NodeState) -> dict[str, NodeState]:
    return {name: changed.get(name.replace("-", "_"), node(name)) for name in LAB.slot_names}


def test_only_free_nodes_become_spares() -> None:
    busy = world(lab_2_1=node("lab-2-1", "ALLOCATED", cpus_used=128))
    for name in ("lab-1-1", "lab-1-2", "lab-1-4"):
        busy[name] = node(name, "ALLOCATED", cpus_used=128)
    assert spares_to_reserve(LAB, busy, frozenset()) == {"lab-1-3"}
    busy["lab-1-3"] = node("lab-1-3", "MIXED", cpus_used=1)
    assert spares_to_reserve(LAB, busy, frozenset()) == frozenset()


def test_flaky_node_is_replaced_by_spare() -> None:
    flaky = world(lab_1_2=replace(node("lab-1-2"), reservation="headway_flaky"))
    assert spares_to_reserve(LAB, flaky, SPARE) == frozenset(), "the spare takes its place"


def test_node_reserved_by_user_is_not_a_spare() -> None:
    theirs = world(lab_2_1=replace(node("lab-2-1", "IDLE", "RESERVED"), reservation="course"))
    assert spares_to_reserve(LAB, theirs, SPARE) == {"lab-1-4"}, "their jobs could not start there"
    tested = world(lab_2_1=replace(node("lab-2-1", "IDLE", "RESERVED"), reservation="headway_test_lab-2-1"))
    assert spares_to_reserve(LAB, tested, SPARE) == SPARE
    nightly = {n: replace(node(n, "IDLE", "MAINTENANCE"), reservation="nightly") for n in LAB.slot_names}
    assert spares_to_reserve(LAB, nightly, SPARE) == SPARE


def test_reserves_nothing_without_spares() -> None:
    bare = cluster(spares=0)
    assert spares_to_reserve(bare, {n: node(n) for n in bare.slot_names}, frozenset()) == frozenset()
