"""Which slots have a machine, and which machines go first when there are too many."""

from __future__ import annotations

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.domain.cluster import Cluster
from headway.domain.machines.scale_in_order import KeepPriority, choose_slots, keep_priority
from headway.validation.yaml_parser import parse_yaml

CATALOGUE = load_catalogue({})
GROUPS = """
name: lab
groups:
  gpu: {plan: h100-8, nodes: 2, max: 4, spares: 1}
  cheap: {plan: h100-8, nodes: 1, spot: true, price: 9.5}
  cpu: {plan: cpu-64, min: 1, max: 3, idle: 10}
partitions: {train: {groups: [gpu, cheap]}, any: {}}
"""


def cluster(text: str = GROUPS) -> Cluster:
    return resolve_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")[0]


def test_existing_machines_keep_slots_before_first_free_ones() -> None:
    got = cluster("name: lab\nplan: h100-8\nnodes: 2\nmax: 4")
    assert choose_slots(got, ()) == ("lab-1-1", "lab-1-2")
    assert choose_slots(got, ("lab-head", "lab-1-4")) == ("lab-1-1", "lab-1-4")


def test_autoscaled_group_keeps_its_first_slots_filled() -> None:
    """Others that are there, and end when no test needs them, don't count for them."""
    got = cluster("name: lab\ngroups: {cpu: {plan: cpu-64, min: 2, max: 4, idle: 10}}")
    assert choose_slots(got, ("lab-head", "lab-cpu-1-3", "lab-cpu-1-4")) == tuple(
        f"lab-cpu-1-{n}" for n in (1, 2, 3, 4)
    )
    assert choose_slots(got, ()) == ("lab-cpu-1-1", "lab-cpu-1-2")
    assert choose_slots(got, ("lab-cpu-1-4",)) == ("lab-cpu-1-1", "lab-cpu-1-2", "lab-cpu-1-4")


def test_scale_down_drops_broken_then_idle_then_last_nodes() -> None:
    got = cluster("name: lab\nplan: h100-8\nnodes: 2\nmax: 4")
    worth = {"lab-1-1": KeepPriority.BROKEN, "lab-1-4": KeepPriority.BUSY}
    assert choose_slots(got, got.slot_names) == ("lab-1-1", "lab-1-2")
    assert choose_slots(got, got.slot_names, worth) == ("lab-1-2", "lab-1-4")


def test_broken_nodes_are_removed_first_and_busy_ones_last() -> None:
    assert keep_priority("drained*", busy=False) is KeepPriority.BROKEN
    assert keep_priority("idle", busy=False) is KeepPriority.IDLE
    assert keep_priority("", busy=False) is KeepPriority.IDLE
    assert keep_priority("draining", busy=True) is KeepPriority.BUSY
