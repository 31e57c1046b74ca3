"""The resources that were allocated to a run in each node group. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from headway.domain.billing.ledger import GroupAllocation, JobRun
from headway.domain.cluster import Group
from headway.domain.machines.gpu_parts import MPS_PER_GPU, WHOLE, GpuParts


def allocations_by_group(run: JobRun, group_of: Mapping[str, Group]) -> list[GroupAllocation]:
    """Returns one entry per group, in the order of the run's nodes.

    Accounting reports totals for the run. They are divided evenly among its nodes, and the first nodes get the
    remainder. On nodes with GPUs only GPUs are billed: a run that holds none of them pays nothing. A MIG instance is
    billed as its share of the GPU's compute slices, a shard as its share of the GPU's shards, MPS as its percentage.
    Nodes that are no longer in the cluster file are in group "", which costs nothing."""
    parts: dict[str, list[str]] = {}
    for node in run.nodes:
        group = group_of.get(node)
        parts.setdefault(group.name if group else "", []).append(node)
    known = {group.name: group for group in group_of.values()}
    cpus, left = run.cpus, len(run.nodes)
    gpus_left = {each: _in_units(run, each) for each in {_parts(known, name) for name in parts}}
    found = []
    for name, nodes in parts.items():
        plan, divided = known[name].plan if name in known else None, _parts(known, name)
        gpu_units = -(-gpus_left[divided] * len(nodes) // left)
        cores = -(-cpus * len(nodes) // left)
        gpus_left = {each: max(0, rest - -(-rest * len(nodes) // left)) for each, rest in gpus_left.items()}
        cpus, left = cpus - cores, left - len(nodes)
        here = Fraction(gpu_units, divided.units_per_gpu)
        per_node = plan.gpus * divided.units_per_gpu or plan.cpus if plan else 1
        units = gpu_units if plan and plan.gpus else min(cores, per_node * len(nodes)) if plan else 0
        kind = run.gpu_type or (plan.gpu_type if plan else "")
        gpus = int(here) if here.denominator == 1 else float(here)
        found.append(GroupAllocation(name, tuple(nodes), kind if here else "", gpus, cores, units, max(1, per_node)))
    return found


def _parts(known: Mapping[str, Group], name: str) -> GpuParts:
    return known[name].parts if name in known else WHOLE


def _in_units(run: JobRun, parts: GpuParts) -> int:
    """Returns the run's GPUs in the units of a group, at least 1 if it holds any."""
    worth = Fraction(run.gpus).limit_denominator(1000)
    if parts.shards:
        worth += Fraction(run.shards, parts.shards)
    worth += Fraction(run.mps, MPS_PER_GPU)
    return max(1, round(worth * parts.units_per_gpu)) if worth else 0
