"""Which slots have a machine: pure, from what is there and what the file asks for. Nothing of it is kept anywhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from headway.domain.cluster import Cluster, Group

OWN = "headway: "
NO_MACHINE = f"{OWN}no machine"  # Slurm's reason for a slot that has none
LEAVES = f"{OWN}leaves"  # and for a node whose machine goes when its jobs have ended; why it was out before follows it
ROLLS = f"{OWN}rolls"  # and for one whose machine is made anew of another image; what went wrong follows it


def out_before(reason: str) -> str:
    """Why a node that leaves was out of service already; "" for one that served."""
    return reason.removeprefix(LEAVES).removeprefix(": ")


class Worth(IntEnum):
    """What speaks for keeping a machine when there are too many."""

    BROKEN = 0  # Slurm can't use it
    IDLE = 1
    BUSY = 2


def choose(cluster: Cluster, machines: Collection[str], worth: Mapping[str, Worth] | None = None) -> tuple[str, ...]:
    """The slots that should have a machine, in slot order. Those that have one keep it where possible; of too many the
    worthless go first, then those in the last places. A group that scales by itself keeps what it has, and its first
    slots always have one."""
    found = {name for group in cluster.groups for name in _of_group(group, machines, worth or {})}
    return tuple(name for name in cluster.slot_names if name in found)


def _of_group(group: Group, machines: Collection[str], worth: Mapping[str, Worth]) -> list[str]:
    there = [name for name in group.slots if name in machines]
    if group.idle_s is not None:
        always = group.slots[: group.wanted]
        return [name for name in group.slots if name in machines or name in always]
    count = group.wanted
    if len(there) > count:
        place = {name: number for number, name in enumerate(group.slots)}
        there.sort(key=lambda name: (-worth.get(name, Worth.IDLE), place[name]))
        return there[:count]
    free = [name for name in group.slots if name not in there]
    return [*there, *free[: count - len(there)]]


@dataclass(frozen=True, slots=True)
class Deadline:
    """`at`: unix seconds until which jobs may go on. `nodes`: those that it was given for, None = all that go; jobs on others
    stay."""

    at: float
    nodes: frozenset[str] | None = None
