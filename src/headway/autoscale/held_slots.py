"""Decides which powered-down slots of a group Slurm may power up: in a group with `queue_time` only so many as the jobs
request that have waited that long, and in a group with `usd_per_hour` only so many as its price limit allows. All other
slots are held: Slurm drains them. Which job gets a slot, Slurm decides. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from headway.autoscale.planner import StateAndReason
from headway.domain.cluster import Cluster, Group
from headway.domain.machines.rental_price import paid_slots, total_price
from headway.domain.slurm.job_states import ALLOCATED
from headway.domain.slurm.node_reasons import HELD_FOR_PRICE, HELD_FOR_QUEUE_TIME, HELD_REASON, is_held_slot
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.group_fit import can_use_group, waits_for_nodes
from headway.jobs.explain.phrases import format_duration
from headway.jobs.explain.placement_search import (
    NodeResources,
    has_simple_constraint,
    is_exclusive,
    requested_per_node,
)
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
    prices: Mapping[str, Decimal] | None = None,
) -> Iterator[HoldSlots | ReleaseSlots]:
    """Yields the slots to hold and to release now. `machines`: slots that have a machine or get one; `jobs`: the queue;
    `backing_off`: groups that create no machine yet after a failure, where no slot is released; `prices`: of rented
    machines, and of those that slots would get, USD an hour."""
    scaled: list[_GroupSlots] = []
    for group in cluster.groups:
        known = {name: states[name] for name in group.slots if name in states}
        held = {name: reason for name, (word, reason) in known.items() if is_held_slot(word, reason)}
        if group.idle_s is not None:
            may, used = _free_slots(group, known, held, machines, group.name in backing_off)
            there = {name for name in known if not known[name][0].endswith("~") or name in machines}
            affordable = _affordable(cluster, group, there, may, prices or {})
            scaled.append(_GroupSlots(group, held, may, used, affordable))
        elif names := tuple(name for name in held if name in machines):  # the group has lost its `idle`
            yield ReleaseSlots(names)
    _count_jobs(cluster, [slots for slots in scaled if slots.group.queue_time_s], tuple(jobs), now)
    for slots in scaled:
        yield from slots.actions()


@dataclass
class _GroupSlots:
    """The powered-down slots of a group, and which of them the jobs need."""

    group: Group
    held: Mapping[str, str]  # all held slots of the group with their reasons
    may: Sequence[str]  # slots that may be held or not; first those that Slurm may power up already
    used: Collection[str]  # held slots that have a machine, or always should
    affordable: int
    left: dict[str, NodeResources] = field(default_factory=dict)  # what the counted jobs leave of the slots they need

    def count(self, job: JobState, nodes: Collection[str], pieces: int, tasks: int) -> int:
        """Counts pieces of the job, each on one node, and returns how many found room. `nodes`: those that the job may use;
        `tasks`: how many pieces may be on the same node."""
        request = self._request(job)
        found = self.room(job, nodes, pieces, tasks)
        for name, count in found.items():
            free = self.left.get(name, self._whole)
            self.left[name] = NodeResources(
                free.gpus - count * request.gpus,
                free.cpus - count * request.cpus,
                free.memory_mib - count * request.memory_mib,
            )
        return sum(found.values())

    def room(self, job: JobState, nodes: Collection[str], pieces: int, tasks: int) -> dict[str, int]:
        """Returns how many pieces of the job fit on each slot. Nodes that the job names come first."""
        request, found = self._request(job), dict[str, int]()
        for name in sorted(self.may, key=lambda name: name not in job.required_nodes):
            needed = len(self.left) + sum(other not in self.left for other in found)
            if name not in nodes or (name not in self.left and needed >= self.affordable):
                continue
            count = min(pieces, tasks, _times(request, self.left.get(name, self._whole)))
            if count:
                found[name] = count
                pieces -= count
        return found

    def names_slot(self, job: JobState) -> bool:
        """Returns whether the job names one of the slots."""
        return not set(job.required_nodes).isdisjoint(self.may)

    def actions(self) -> Iterator[HoldSlots | ReleaseSlots]:
        """Yields the slots to hold and to release."""
        opened = self.left.keys() if self.group.queue_time_s else self.may[: self.affordable]
        closed = [name for name in self.may if name not in opened]
        waiting = max(0, self.affordable - len(opened))
        reasons = dict.fromkeys(closed[:waiting], _queue_time_reason(self.group))
        reasons |= dict.fromkeys(closed[waiting:], _price_reason(self.group))
        for reason in sorted(set(reasons.values())):
            slots = self.group.slots
            if names := tuple(name for name in slots if reasons.get(name) == reason and self.held.get(name) != reason):
                yield HoldSlots(names, reason)
        released = {*opened, *self.used}
        if names := tuple(name for name in self.group.slots if name in released and name in self.held):
            yield ReleaseSlots(names)

    @property
    def _whole(self) -> NodeResources:
        plan = self.group.plan
        return NodeResources(sum(self.group.gpu_counts.values()), plan.cpus, plan.memory_mib)

    def _request(self, job: JobState) -> NodeResources:
        return self._whole if is_exclusive(job) else requested_per_node(job)


def _free_slots(
    group: Group,
    known: Mapping[str, StateAndReason],
    held: Mapping[str, str],
    machines: Collection[str],
    backing_off: bool,
) -> tuple[list[str], list[str]]:
    """Returns the slots that may be held or not, and the held ones that have a machine or always should."""
    empty = [name for name, (word, _) in known.items() if word.endswith("~") and name not in machines]
    may = [name for name in empty if name not in group.slots[: group.min_machines]]
    may = [name for name in may if known[name][1] == "none" or known[name][1].startswith(HELD_REASON)]
    used = [name for name in held if name not in may]
    if backing_off:
        may = [name for name in may if name not in held]
    may.sort(key=lambda name: name in held)
    return may, used


def _count_jobs(cluster: Cluster, groups: Sequence[_GroupSlots], jobs: Sequence[JobState], now: float) -> None:
    """Counts each job that has waited long enough, on the fewest slots: jobs may share a node. It counts in the first group of
    the file that has room for it; if none has room for the whole job, it counts in several. A job whose --constraint can't
    be evaluated here counts in each group: Slurm may use any of them."""
    running = Counter(job.array_job_id for job in jobs if job.array_job_id and job.state in ALLOCATED)
    for job in jobs:
        if not waits_for_nodes(job):
            continue
        waited = now - (job.eligible_time or job.submit_time)
        usable = [slots for slots in groups if waited >= slots.group.queue_time_s]
        usable = [slots for slots in usable if can_use_group(job, slots.group, cluster)]
        nodes = _usable_nodes(job, cluster)
        tasks = _tasks_at_once(job, running[job.array_job_id])
        pieces = max(1, job.node_count) * tasks
        if job.node_count > 1:
            fits = {slots.group.name: sum(slots.room(job, nodes, pieces, tasks).values()) == pieces for slots in usable}
            usable.sort(key=lambda slots: (not slots.names_slot(job), not fits[slots.group.name]))
        for slots in usable:
            found = slots.count(job, nodes, pieces, tasks)
            if has_simple_constraint(job):
                pieces -= found


def _usable_nodes(job: JobState, cluster: Cluster) -> Collection[str]:
    """Returns the nodes of the job's partitions without excluded ones; only those that the job names if they are enough."""
    named = job.partition.split(",")
    nodes = {name for part in cluster.partitions if part.name in named for name in part.nodes}
    if 0 < job.node_count <= len(job.required_nodes):
        nodes &= set(job.required_nodes)
    return nodes - set(job.excluded_nodes)


def _tasks_at_once(job: JobState, running: int) -> int:
    """Returns how many further tasks of the job's array may start; 1 for a job of its own."""
    if not job.array_task:
        return 1
    percent = job.array_task.partition("%")[2].strip("]")
    limit = job.array_limit or (int(percent) if percent.isdigit() else 0)
    tasks = task_count(job.array_task)
    return min(tasks, max(0, limit - running)) if limit else tasks


def _times(request: NodeResources, free: NodeResources) -> int:
    """Returns how often the request fits in what is free."""
    pairs = (
        (request.gpus, free.gpus),
        (request.cpus, free.cpus),
        (request.memory_mib, free.memory_mib),
    )
    return min((there // wanted for wanted, there in pairs if wanted), default=1)


def _affordable(
    cluster: Cluster, group: Group, there: Collection[str], free: Sequence[str], prices: Mapping[str, Decimal]
) -> int:
    """Returns for how many of the free slots the group's price limit allows a further machine."""
    if group.max_usd_per_hour is None:
        return len(group.slots)
    count, names = 0, {*paid_slots(group, there)}
    total = total_price(cluster, names, prices)
    for name in free:
        total += total_price(cluster, {name} - names, prices)
        if total > group.max_usd_per_hour:
            break
        count += 1
    return count


def _queue_time_reason(group: Group) -> str:
    return f"{HELD_FOR_QUEUE_TIME} {format_duration(group.queue_time_s)} for it"


def _price_reason(group: Group) -> str:
    limit = group.max_usd_per_hour or Decimal(0)
    return f"{HELD_FOR_PRICE} {limit.normalize():f} USD an hour of group {group.name}"
