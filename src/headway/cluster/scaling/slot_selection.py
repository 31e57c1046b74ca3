"""Reads the machines and Slurm's node states, then selects the slots that should have a machine, by
`domain.machines.scale_in_order`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from headway.cluster.active_head import active_head
from headway.cluster.context import ClusterContext
from headway.cluster.scaling.reclaim_notices import reclaim_notices
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.machines.scale_in_order import KeepPriority, choose_slots, keep_priority
from headway.domain.slurm.node_reasons import SCALE_IN_REASON
from headway.errors import HeadwayError
from headway.slurm import node_commands, node_jobs


async def select_slots(cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]) -> tuple[str, ...]:
    """Returns the slots that should have a machine. With too many machines, busy nodes stay; if Slurm does not answer,
    the order of slots decides. Reclaimed machines do not count and are not removed."""
    if all(group.idle_s is None and group.most == group.nodes for group in cluster.groups):
        return cluster.slot_names
    going = await reclaim_notices(context.provider, cluster) if any(group.spot for group in cluster.groups) else {}
    going = {name: at for name, at in going.items() if name in machines}
    stay = {name: machine for name, machine in machines.items() if name not in going}
    chosen = {*await _chosen(cluster, context, stay), *going}
    return tuple(name for name in cluster.slot_names if name in chosen)


async def leaving_with_jobs(
    cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine], chosen: Collection[str]
) -> frozenset[str]:
    """Returns the slots outside `chosen` that an earlier operation already drains and that still run jobs. Returns none
    if the controller does not answer."""
    over = [name for name in cluster.slot_names if name in machines and name not in chosen]
    head = await active_head(cluster, context, machines) if over and context.provider.traits.creates_machines else None
    if head is None:
        return frozenset()
    with contextlib.suppress(HeadwayError):
        states = await node_commands.read_node_reasons(context.connections, head)
        over = [name for name in over if states.get(name, ("", ""))[1].startswith(SCALE_IN_REASON)]
        return (
            frozenset(over) & (await node_jobs.jobs_by_node(context.connections, head)).keys() if over else frozenset()
        )
    return frozenset()


async def _chosen(cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]) -> tuple[str, ...]:
    slots = choose_slots(cluster, machines)
    if machines.keys() - set(cluster.heads) <= set(slots):
        return slots
    head = await active_head(cluster, context, machines)
    if head is None:
        return slots
    worth: dict[str, KeepPriority] = {}
    with contextlib.suppress(HeadwayError):
        busy = await node_jobs.jobs_by_node(context.connections, head)
        states = await node_commands.read_node_reasons(context.connections, head)
        worth = {name: keep_priority(states.get(name, ("", ""))[0], busy=name in busy) for name in machines}
    return choose_slots(cluster, machines, worth)
