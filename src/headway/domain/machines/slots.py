"""Chooses which slots have a machine, from the existing machines and the sizes in the cluster file alone; nothing is
stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from headway.domain.cluster import Cluster, Group

HEADWAY_REASON = "headway: "  # prefix of every reason that Headway gives to Slurm
NO_MACHINE_REASON = f"{HEADWAY_REASON}no machine"  # reason of a slot without a machine
# Reason of a node whose machine is removed when its jobs have ended, followed by the earlier reason if the node was
# already out of service.
SCALE_IN_REASON = f"{HEADWAY_REASON}leaves"
# Reason of a node whose machine is created again from another image, followed by the error, if any.
ROLLOUT_REASON = f"{HEADWAY_REASON}rolls"
# Reason of a node whose division of GPUs changes, followed by the error, if any.
PARTS_REASON = f"{ROLLOUT_REASON} its GPUs"
# Reason of a node whose GPU driver is replaced, followed by the error, if any.
DRIVER_REASON = f"{ROLLOUT_REASON} its GPU driver"


def reason_before_scale_in(reason: str) -> str:
    """Returns the reason for which a node was out of service before its removal began; "" if it was in service."""
    return reason.removeprefix(SCALE_IN_REASON).removeprefix(": ")


class KeepPriority(IntEnum):
    """Reason to keep a machine when there are too many; the highest value is kept first."""

    BROKEN = 0  # Slurm can't use the node
    IDLE = 1
    BUSY = 2


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


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time until which jobs may run on nodes that will be removed. `at`: unix seconds. `nodes`: the nodes that it
    applies to, None = all; jobs on other nodes are not limited."""

    at: float
    nodes: frozenset[str] | None = None
