"""Selects the nodes that Headway's spare reservation should hold. Pure: from slots and Slurm's node states.

A cluster of N nodes and S spares keeps S usable nodes in reserve for as long as N others are usable. When one of the N
breaks, a spare leaves the reservation and Slurm starts the waiting work on it. The broken node becomes a spare when it
returns."""

from __future__ import annotations

from collections.abc import Mapping

from headway.domain.cluster import Cluster, Group
from headway.domain.slurm.nodes_and_jobs import FLAKY_NODES, OURS, NodeState


def spares_to_reserve(cluster: Cluster, nodes: Mapping[str, NodeState], reserved: frozenset[str]) -> frozenset[str]:
    """Returns the nodes to reserve. Reserved nodes stay where possible, then idle ones from the last slot backwards.
    Never reserves a node with work or in a person's reservation."""
    if not cluster.spares:
        return frozenset()
    return frozenset(name for group in cluster.groups for name in _of_group(group, nodes, reserved))


def _of_group(group: Group, nodes: Mapping[str, NodeState], reserved: frozenset[str]) -> list[str]:
    sound = {name for name, node in nodes.items() if node.usable and node.reservation != FLAKY_NODES}
    usable = [name for name in group.slots if name in sound]
    count = max(0, min(group.spares, len(usable) - group.nodes))
    order = sorted(usable, key=lambda name: (name not in reserved, -group.slots.index(name)))
    free = [name for name in order if name in reserved or not nodes[name].cpus_used]
    return [name for name in free if not _reserved_by_person(nodes[name])][:count]


def _reserved_by_person(node: NodeState) -> bool:
    """Returns whether a person's reservation has begun on the node: its jobs could not start if the spare reservation
    held the node too. Maintenance reservations do not count, because no job starts during them and they end again."""
    named = node.reservation and not node.reservation.startswith(OURS)
    return bool(named) and "MAINTENANCE" not in node.states
