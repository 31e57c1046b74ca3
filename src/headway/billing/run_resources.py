"""The resources that a run held in each node group. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headway.domain.billing import GroupAllocation, JobRun
from headway.domain.cluster import Group


def allocations_by_group(run: JobRun, group_of: Mapping[str, Group]) -> list[GroupAllocation]:
    """Returns one entry per group, in the order of the run's nodes.

    Accounting reports totals for the run. They are divided evenly among its nodes, and the first nodes get the
    remainder. On nodes with GPUs only GPUs are billed: a run that holds none of them pays nothing. Nodes that are no
    longer in the cluster file are in group "", which costs nothing."""
    parts: dict[str, list[str]] = {}
    for node in run.nodes:
        group = group_of.get(node)
        parts.setdefault(group.name if group else "", []).append(node)
    known = {group.name: group for group in group_of.values()}
    gpus, cpus, left = run.gpus, run.cpus, len(run.nodes)
    found = []
    for name, nodes in parts.items():
        plan = known[name].plan if name in known else None
        here, cores = -(-gpus * len(nodes) // left), -(-cpus * len(nodes) // left)
        gpus, cpus, left = gpus - here, cpus - cores, left - len(nodes)
        per_node = plan.gpus or plan.cpus if plan else 1
        units = here if plan and plan.gpus else min(cores, per_node * len(nodes)) if plan else 0
        kind = run.gpu_type or (plan.gpu_type if plan else "")
        found.append(GroupAllocation(name, tuple(nodes), kind if here else "", here, cores, units, max(1, per_node)))
    return found
