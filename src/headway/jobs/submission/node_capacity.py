"""The most that a job can get on one node of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import NodeState


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """The largest number of each resource on any node; `total_gpus` counts the GPUs of all nodes."""

    gpus: int
    total_gpus: int
    gpu_types: tuple[str, ...]
    cpus: int
    memory_mib: int


def largest_node(cluster: Cluster, nodes: Iterable[NodeState] = ()) -> NodeCapacity:
    """Returns the largest amount of each resource on any node. `nodes` are the nodes as Slurm lists them: a
    machine of one's own may differ from its plan, and Slurm has the hardware that was found. Nodes that Slurm does
    not list count as their plan says."""
    reported = {node.name: node for node in nodes if node.cpus}
    gpus, types, cpus, memory = [0], [], [0], [0]
    for group in cluster.groups:
        seen = [reported[name] for name in group.slots if name in reported]
        gpus += [node.gpus for node in seen]
        cpus += [node.cpus for node in seen]
        memory += [node.memory_mib for node in seen]
        types += [kind for node in seen for kind in node.gpu_types]
        if unseen := len(group.slots) - len(seen):
            plan = group.plan
            gpus += [sum(group.gpu_counts.values())] * unseen
            cpus.append(plan.cpus)
            memory.append(plan.memory_mib)
            types += list(group.gpu_counts)
    return NodeCapacity(max(gpus), sum(gpus), tuple(dict.fromkeys(types)), max(cpus), max(memory))
