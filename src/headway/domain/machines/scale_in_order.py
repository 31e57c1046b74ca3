"""Which slots have a machine, and which machines go first when there are too many: from the existing machines and the sizes in
the cluster file alone; nothing is stored. `cluster.scaling.slot_selection` reads what it needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum

from headway.domain.cluster import Cluster, Group


class KeepPriority(IntEnum):
    """Reason to keep a machine when there are too many; the highest value is kept first."""

    BROKEN = 0  # Slurm can't use the node
    IDLE = 1
    BUSY = 2


# Beginnings of states in which Slurm starts no job on a node.
_UNUSABLE = ("down", "drain", "fail", "unknown", "inval")


def keep_priority(state: str, *, busy: bool) -> KeepPriority:
    """Returns the priority of a node. `state`: Slurm's, in lower case, "" if not known; `busy`: it runs jobs."""
    if busy:
        return KeepPriority.BUSY
    return KeepPriority.BROKEN if state.startswith(_UNUSABLE) else KeepPriority.IDLE


def choose_slots(
    cluster: Cluster, machines: Collection[str], worth: Mapping[str, KeepPriority] | None = None
) -> tuple[str, ...]:
    """Returns the slots that should have a machine, in slot order. Machines keep their slots where possible. When there
    are too many, those with the lowest KeepPriority are dropped first, then those in the last slots. An autoscaled
    group keeps all its machines, and its first `min_machines` slots always have one."""
    found = {name for group in cluster.groups for name in _of_group(group, machines, worth or {})}
    return tuple(name for name in cluster.slot_names if name in found)


def _of_group(group: Group, machines: Collection[str], worth: Mapping[str, KeepPriority]) -> list[str]:
    there = [name for name in group.slots if name in machines]
    if group.idle_s is not None:
        always = group.slots[: group.min_machines]
        return [name for name in group.slots if name in machines or name in always]
    count = group.min_machines
    if len(there) > count:
        place = {name: number for number, name in enumerate(group.slots)}
        there.sort(key=lambda name: (-worth.get(name, KeepPriority.IDLE), place[name]))
        return there[:count]
    free = [name for name in group.slots if name not in there]
    return [*there, *free[: count - len(there)]]
