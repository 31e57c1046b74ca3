"""Groups and plans: nodes that agree in hardware, features, weight and partitions are one group of the cluster file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.catalog.plans import load_catalogue
from headway.slurm_import import site_names
from headway.slurm_import.nodes.node_lines import LEAST_MEMORY_MIB, SiteNode, features_of

MOST_GROUPS = 50
_NO_MEMORY_PER_CPU_MIB = 2048  # of a plan whose memory is not known


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one group. `plan`: its catalogue entry."""

    name: str
    nodes: tuple[SiteNode, ...]
    plan_name: str
    plan: Mapping[str, Any]
    features: tuple[str, ...]
    weight: int | None  # None: all nodes of the site weigh the same


def make_groups(
    nodes: Iterable[SiteNode], partitions_of: Mapping[str, frozenset[str]], leaf_of: Mapping[str, str]
) -> tuple[list[NodeGroup], list[str]]:
    """Returns the groups, and sentences about differences between nodes that 50 groups could not show. Nodes of a
    group are in the order of their leaf switches."""
    all_nodes = list(nodes)
    ways: list[tuple[str, Callable[[SiteNode], Any]]] = [
        ("", lambda node: (node.hardware, node.features, node.weight, partitions_of.get(node.name))),
        ("features and weights of nodes", lambda node: (node.hardware, partitions_of.get(node.name))),
        (
            "features, weights, CPUs and memory of nodes",
            lambda node: (node.gpu_type, node.gpus, partitions_of.get(node.name)),
        ),
        ("all nodes but their GPUs", lambda node: (node.gpu_type, node.gpus)),
        ("all nodes", lambda _: None),
    ]
    for lost, key in ways:
        classes: dict[Any, list[SiteNode]] = {}
        for node in all_nodes:
            classes.setdefault(key(node), []).append(node)
        if len(classes) <= MOST_GROUPS:
            notes = (
                [f"a cluster has at most {MOST_GROUPS} groups: differences of {lost} are not carried"] if lost else []
            )
            return _named(list(classes.values()), leaf_of), notes
    raise AssertionError("one class is always possible")


def _named(classes: Sequence[list[SiteNode]], leaf_of: Mapping[str, str]) -> list[NodeGroup]:
    names, plans, by_hardware = (
        site_names.group_names(),
        site_names.plain_names(),
        dict[Any, tuple[str, Mapping[str, Any]]](),
    )
    leaves = {leaf: place for place, leaf in enumerate(dict.fromkeys(leaf_of.values()))}
    weigh = len({node.weight for nodes in classes for node in nodes}) > 1
    groups = []
    for nodes in classes:
        first = nodes[0]
        if first.hardware not in by_hardware:
            by_hardware[first.hardware] = (plans.new(f"site-{_hardware_name(first)}"), _plan(first))
        base = re.sub(r"[^a-z]", "", re.split(r"[-_.0-9]", first.name.lower())[0])[:9] or first.gpu_type or "nodes"
        ordered = sorted(nodes, key=lambda node: leaves.get(leaf_of.get(node.name, ""), len(leaves)))
        groups.append(
            NodeGroup(
                names.new(base),
                tuple(ordered),
                *by_hardware[first.hardware],
                features=tuple(features_of(first)),
                weight=first.weight if weigh else None,
            )
        )
    return groups


def _plan(node: SiteNode) -> dict[str, Any]:
    """Returns the catalogue entry of a node's hardware; a memory that the site does not name is 2 GiB for each CPU."""
    cpus = min(max(node.cpus, 1), 4096)
    memory = (
        node.memory_mib if node.memory_mib >= LEAST_MEMORY_MIB else max(LEAST_MEMORY_MIB, cpus * _NO_MEMORY_PER_CPU_MIB)
    )
    gpus = {"gpu_type": node.gpu_type, "gpus": node.gpus, **_known_gpu(node.gpu_type)} if node.gpus else {}
    return {**gpus, "cpus": cpus, "memory_mib": memory}


def _known_gpu(gpu_type: str) -> dict[str, Any]:
    """Returns product and memory of a GPU type that the catalogue of Headway has."""
    for plan in load_catalogue().values():
        if plan.gpus and plan.gpu_type == gpu_type:
            return {"gpu_product": plan.gpu_product, "gpu_memory_mib": plan.gpu_memory_mib}
    return {}


def _hardware_name(node: SiteNode) -> str:
    return f"{node.gpu_type}-{node.gpus}" if node.gpus else f"cpu-{node.cpus}"
