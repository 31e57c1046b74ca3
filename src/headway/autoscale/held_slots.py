"""Decides which powered-down slots of a group Slurm may power up: in a group with `queue_time` only so many as the jobs
request that have waited that long, and in a group with `usd_per_hour` only so many as its price limit allows. All other
slots are held: Slurm drains them. Which job gets a slot, Slurm decides. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from headway.autoscale.planner import StateAndReason, machine_count
from headway.domain.cluster import Cluster, Group
from headway.domain.slurm.node_reasons import HELD_FOR_PRICE, HELD_FOR_QUEUE_TIME, HELD_REASON
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.group_fit import can_use_group, waits_for_nodes
from headway.jobs.explain.phrases import format_duration
from headway.jobs.view.array_tasks import task_count


@dataclass(frozen=True, slots=True)
class HoldSlots:
    """Keeps Slurm from powering up these slots."""

    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseSlots:
    """Lets Slurm power up these slots, or use them, again."""

    nodes: tuple[str, ...]


def plan_held_slots(
    cluster: Cluster,
    states: Mapping[str, StateAndReason],
    machines: Collection[str],
    jobs: Iterable[JobState],
    now: float,
    backing_off: Collection[str] = (),
) -> Iterator[HoldSlots | ReleaseSlots]:
    """Yields the slots to hold and to release now. `machines`: slots that have a machine or get one; `jobs`: the queue;
    `backing_off`: groups that create no machine yet after a failure, where no slot is released."""
    queue = [job for job in jobs if waits_for_nodes(job)]
    for group in cluster.groups:
        if group.idle_s is None:
            continue
        known = {name: states[name] for name in group.slots if name in states}
        held = {name: reason for name, (_, reason) in known.items() if reason.startswith(HELD_REASON)}
        empty = [name for name, (word, _) in known.items() if word.endswith("~") and name not in machines]
        may = [name for name in empty if name not in group.slots[: group.min_machines]]
        may = [name for name in may if name in held or known[name][1] == "none"]
        affordable = _affordable(group, {name for name in known if name not in empty})
        wanted = min(_requested_nodes(cluster, group, queue, now), affordable)
        may.sort(key=lambda name: name in held)  # slots that Slurm may power up already stay so
        opened = may[:wanted]
        if group.name in backing_off:
            opened = [name for name in opened if name not in held]
        reasons = dict.fromkeys(may[wanted:affordable], _queue_time_reason(group))
        reasons |= dict.fromkeys(may[affordable:], _price_reason(group))
        for reason in sorted(set(reasons.values())):
            names = tuple(name for name in group.slots if reasons.get(name) == reason and held.get(name) != reason)
            if names:
                yield HoldSlots(names, reason)
        released = {*opened, *(name for name in held if name not in may)}  # a held slot with a machine is used again
        names = tuple(name for name in group.slots if name in released and name in held)
        if names:
            yield ReleaseSlots(names)


def _requested_nodes(cluster: Cluster, group: Group, queue: Iterable[JobState], now: float) -> int:
    """Returns how many nodes the jobs request that have waited long enough for nodes of the group."""
    if not group.queue_time_s:
        return len(group.slots)
    waited = [job for job in queue if now - (job.eligible_time or job.submit_time) >= group.queue_time_s]
    return sum(
        max(1, job.node_count) * (task_count(job.array_task) if job.array_task else 1)
        for job in waited
        if can_use_group(job, group, cluster)
    )


def _affordable(group: Group, used: Collection[str]) -> int:
    """Returns how many further machines the group's price limit allows."""
    price = group.price_usd_per_node_hour
    if group.max_usd_per_hour is None or price <= Decimal(0):
        return len(group.slots)
    return max(0, int(group.max_usd_per_hour / price) - machine_count(group, used))


def _queue_time_reason(group: Group) -> str:
    return f"{HELD_FOR_QUEUE_TIME} {format_duration(group.queue_time_s)} for it"


def _price_reason(group: Group) -> str:
    limit = group.max_usd_per_hour or Decimal(0)
    return f"{HELD_FOR_PRICE} {limit.normalize():f} USD an hour of group {group.name}"
