"""Chooses which slots have a machine. Pure: from the machines that exist and the sizes in the file; nothing is stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from headway.domain.cluster import Cluster, Group

HEADWAY_REASON = "headway: "  # how every reason that Headway gives to Slurm begins
NO_MACHINE_REASON = f"{HEADWAY_REASON}no machine"  # of a slot that has no machine
# Of a node whose machine is removed when its jobs have ended; the reason that it was out of service before follows.
SCALE_IN_REASON = f"{HEADWAY_REASON}leaves"
# Of a node whose machine is created again from another image; what went wrong follows.
ROLLOUT_REASON = f"{HEADWAY_REASON}rolls"


def reason_before_scale_in(reason: str) -> str:
    """Why a node that leaves was out of service already; "" for one that served."""
    return reason.removeprefix(SCALE_IN_REASON).removeprefix(": ")


class KeepPriority(IntEnum):
    """What speaks for keeping a machine when there are too many."""

    BROKEN = 0  # Slurm can't use it
    IDLE = 1
    BUSY = 2


def choose_slots(
    cluster: Cluster, machines: Collection[str], worth: Mapping[str, KeepPriority] | None = None
) -> tuple[str, ...]:
    """The slots that should have a machine, in slot order. Those that have one keep it where possible; of too many the
    worthless go first, then those in the last places. A group that scales by itself keeps what it has, and its first
    slots always have one."""
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
    """`at`: unix seconds until which jobs may go on. `nodes`: those that it was given for, None = all that go; jobs on others
    stay."""

    at: float
    nodes: frozenset[str] | None = None
