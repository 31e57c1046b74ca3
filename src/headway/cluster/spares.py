"""Which nodes stand by. Pure: (slots, what Slurm says) -> the nodes that Headway's reservation should hold.

A cluster of N nodes and S spares keeps S usable nodes in reserve for as long as N others are usable. When one of the N
breaks, a spare leaves the reservation and Slurm starts the waiting work on it; the node that comes back stands by next.
"""

from __future__ import annotations

from collections.abc import Mapping

from headway.domain.cluster import Cluster
from headway.domain.live import NodeState


def wanted_reserve(cluster: Cluster, nodes: Mapping[str, NodeState], reserved: frozenset[str]) -> frozenset[str]:
    """The nodes to hold. Those held already stay where possible, then idle ones from the last slot backwards;
    a node with work is never taken."""
    if not cluster.spares:
        return frozenset()
    usable = [name for name in cluster.slot_names if name in nodes and nodes[name].usable]
    count = max(0, min(cluster.spares, len(usable) - cluster.nodes))
    order = sorted(usable, key=lambda name: (name not in reserved, -cluster.slot_names.index(name)))
    free = [name for name in order if name in reserved or not nodes[name].cpus_used]
    return frozenset(free[:count])
