"""Decides which machines to create and delete for autoscaled and spot groups. Pure: (node states, machines) -> actions.
Slurm's node states show which machines it needs, the provider lists those that exist. Both are read in each pass, so no
work is lost when a server is killed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from headway.autoscale.retry_delays import FIRST_WAIT_S
from headway.domain.cluster import Cluster, Group
from headway.domain.machines.machine import Machine
from headway.domain.machines.rental_price import paid_slots, total_price
from headway.domain.slurm.node_reasons import (
    CLOSED_REASON,
    HEADWAY_REASON,
    HELD_REASON,
    NO_MACHINE_REASON,
    closed_until,
    is_held_slot,
)

REGISTER_S = 300.0  # a machine that no task works on should have registered with Slurm after so many seconds
NOT_REGISTERED = "it did not come up"
StateAndReason = tuple[str, str]  # sinfo's %T and reason


@dataclass(frozen=True, slots=True)
class CreateMachines:
    """Creates the machines of slots of one group that are of use only together: those of one job."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteMachine:
    """Deletes the machine of a slot."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class CloseSlots:
    """Takes a group's slots out of service until a time, so that Slurm uses nodes of other groups."""

    group: str
    nodes: tuple[str, ...]
    until: float
    why: str


@dataclass(frozen=True, slots=True)
class OpenSlots:
    """Lets Slurm power up these slots again after they were closed."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResetNode:
    """Lets Slurm power up a node again that it had given up."""

    node: str


ScalingAction = CreateMachines | DeleteMachine | CloseSlots | OpenSlots | ResetNode


def plan_scaling(
    cluster: Cluster,
    states: Mapping[str, StateAndReason],
    machines: Mapping[str, Machine],
    being_created: Collection[str],
    now: float,
    *,
    leaving: Collection[str] = (),
    backing_off: Collection[str] = (),
    closed_s: Mapping[str, float] | None = None,
    jobs: Mapping[str, Collection[int]] | None = None,
    next_file: Cluster | None = None,
    begun: Collection[str] = (),
    ready_at: Mapping[str, float] | None = None,
    prices: Mapping[str, Decimal] | None = None,
) -> Iterator[ScalingAction]:
    """Yields the actions to carry out now. `being_created`: nodes whose machines are being created; `leaving`: nodes
    whose machines are reclaimed; `backing_off`: groups that create no machine yet after a failure; `closed_s`: seconds
    for which a group over its cost limit is closed; `jobs`: node -> jobs that wait for it: the nodes of one job are
    created all or none; `next_file`: the cluster file that applies once `leaving` is empty: machines must fit its limit
    and its group sizes too; `begun`: slots for which a machine is rented that is not in `machines` yet; `ready_at`: when the
    machine of a slot was set up, if that is later than its start: from then on it has time to register; `prices`: of rented
    machines, and of those that slots would get, USD an hour."""
    there = {*machines, *being_created}
    up_since = {name: max(one.started_at, (ready_at or {}).get(name, 0.0)) for name, one in machines.items()}
    late = {name for name, since in up_since.items() if 0 < since < now - REGISTER_S}
    files = [(cluster, there)] if next_file is None else [(cluster, there), (next_file, there - {*leaving})]
    budget = _Budget(files, prices or {})
    fill = _fill_targets(cluster, next_file)
    for group in cluster.groups:
        filled = group.spot and group.name not in backing_off
        short = _missing_slots(group, fill[group.name], states, machines, being_created, leaving) if filled else ()
        for name in short:
            if budget.has_room([name]):
                yield CreateMachines((name,))
        ghosts = tuple(_unregistered(group, states, late - {*being_created, *leaving})) if group.spot else ()
        yield from (DeleteMachine(name, NOT_REGISTERED) for name in ghosts)
        if group.idle_s is None:
            continue
        woken: list[str] = []
        for name in group.slots:
            if name in being_created or name in short or name in ghosts or name not in states:
                continue
            action = _node_action(name, states[name], name in machines, late=name in late, begun=name in begun)
            if isinstance(action, CreateMachines):
                woken += [name] if group.name not in backing_off else []
            elif action is not None:
                yield action
        over: list[str] = []
        for together in _group_by_shared_jobs(woken, jobs or {}):
            if budget.has_room(together):
                yield CreateMachines(tuple(together))
            else:
                over += together
        if over:
            until = now + (closed_s or {}).get(group.name, FIRST_WAIT_S)
            yield close_slots(group, states, over, until, f"over the limit of {budget.limit}")
        opened = tuple(name for name in group.slots if name in states and _close_expired(states[name][1], now))
        if opened and not over:
            yield OpenSlots(opened)


def _group_by_shared_jobs(names: Sequence[str], jobs: Mapping[str, Collection[int]]) -> list[list[str]]:
    """Returns the nodes grouped by job. The nodes of one job, or of several jobs that share nodes, are only useful
    together."""
    found: list[tuple[set[int], list[str]]] = []
    for name in names:
        mine, whole = set(jobs.get(name, ())), [name]
        akin = [part for part in found if part[0] & mine]
        at = found.index(akin[0]) if akin else len(found)
        for part in reversed(akin):
            found.remove(part)
            mine, whole = mine | part[0], [*part[1], *whole]
        found.insert(at, (mine, whole))
    return [whole for _, whole in found]


def _unregistered(group: Group, states: Mapping[str, StateAndReason], late: Collection[str]) -> Iterator[str]:
    """Yields slots whose machine should have registered with Slurm by now (`late`), but that Slurm still marks as having no
    machine."""
    for name in group.slots:
        if name in late and states.get(name, ("", ""))[1] == NO_MACHINE_REASON:
            yield name


def _fill_targets(cluster: Cluster, after: Cluster | None) -> dict[str, int]:
    """Returns the number of machines that each group is filled up to: the lower of the two files' numbers."""
    later = {group.name: group.min_machines for group in (after or cluster).groups}
    return {group.name: min(group.min_machines, later.get(group.name, 0)) for group in cluster.groups}


def _missing_slots(
    group: Group,
    count: int,
    states: Mapping[str, StateAndReason],
    machines: Collection[str],
    making: Collection[str],
    leaving: Collection[str],
) -> tuple[str, ...]:
    """Returns free slots for the machines that the group is short of."""
    there = [name for name in group.slots if (name in machines or name in making) and name not in leaving]
    free = [
        name
        for name in group.slots
        if name not in machines and name not in making and _slot_is_free(states.get(name, ("", "")))
    ]
    return tuple(free[: max(0, count - len(there))])


def _slot_is_free(state: StateAndReason) -> bool:
    """Returns whether the slot may get a machine: Slurm marks it as empty, or it is powered down and Headway has set no
    reason."""
    word, reason = state
    if reason.startswith(HELD_REASON):
        return word.endswith("~") and not is_held_slot(word, reason)
    return reason == NO_MACHINE_REASON or (word.endswith("~") and not reason.startswith(HEADWAY_REASON))


def _node_action(name: str, state: StateAndReason, exists: bool, *, late: bool, begun: bool) -> ScalingAction | None:
    """Returns the action for one slot of an autoscaled group, by its state in Slurm; None for nothing to do. `exists`: it has
    a machine; `late`: which should have registered by now; `begun`: a machine is rented for it that no task works on: it
    is used if Slurm needs one, else it is ended."""
    word, reason = state
    there = exists or begun
    asleep, wakes, leaves = word.endswith("~"), word.endswith("#"), word.endswith("%") or word == "powering_down"
    if reason.startswith(CLOSED_REASON):
        return DeleteMachine(name, "its slot is closed") if there else None
    if wakes and not exists:
        return CreateMachines((name,))
    if wakes and late:
        return DeleteMachine(name, NOT_REGISTERED)
    if (asleep or leaves) and there and (reason.startswith(HELD_REASON) or not word.startswith("drain")):
        return DeleteMachine(name, "Slurm does not need it")
    if begun and not exists:
        return DeleteMachine(name, "no machine is missing there")
    if word.startswith("down") and reason.startswith("ResumeTimeout"):
        return ResetNode(name)
    return None


def close_slots(
    group: Group, states: Mapping[str, StateAndReason], nodes: Collection[str], until: float, why: str
) -> CloseSlots:
    """Returns the action that closes the group's powered-down slots and `nodes`; held slots stay held."""
    asleep = {name for name in group.slots if _is_asleep(states.get(name, ("", "")))}
    return CloseSlots(group.name, tuple(name for name in group.slots if name in asleep | set(nodes)), until, why)


def _is_asleep(state: StateAndReason) -> bool:
    """Returns whether the slot is powered down, and Slurm may power it up."""
    word, reason = state
    return word.endswith("~") and not is_held_slot(word, reason)


def close_reason(action: CloseSlots) -> str:
    """Returns Slurm's reason for closed slots."""
    return f"{CLOSED_REASON} {action.until:.0f}: {action.why}"


def _close_expired(text: str, now: float) -> bool:
    """Returns whether the reason is that of a closed slot whose time is over."""
    found = closed_until(text)
    return found is not None and now >= found[0]


@dataclass
class _Budget:
    """Checks the cost of the existing machines, and of machines that a file requests but that are missing now, against
    the limit of each file."""

    files: list[tuple[Cluster, set[str]]]  # each file with the machines that exist when it applies
    prices: Mapping[str, Decimal]  # of rented machines, and of those that slots would get
    limit: str = ""  # the limit that was exceeded last, in words

    def has_room(self, names: Collection[str]) -> bool:
        """Returns whether these machines fit the limits too. If they do, they count from then on."""
        files = [(file, there | set(names)) for file, there in self.files]
        for file, there in files:
            for limit, usd in _limits(file, there, names, self.prices):
                if usd > limit[0]:
                    self.limit = f"{limit[0].normalize():f} USD an hour{limit[1]}"
                    return False
        self.files = files
        return True


def _limits(
    cluster: Cluster, there: Collection[str], names: Collection[str], prices: Mapping[str, Decimal]
) -> Iterator[tuple[tuple[Decimal, str], Decimal]]:
    """Yields each limit of a file that holds for these further machines, with the words for it, and the cost of all machines
    that it holds for, USD an hour."""
    if cluster.max_usd_per_hour is not None:
        slots = (name for group in cluster.groups for name in paid_slots(group, there))
        yield (cluster.max_usd_per_hour, ""), total_price(cluster, (*cluster.heads, *slots), prices)
    for group in cluster.groups:
        if group.max_usd_per_hour is not None and not set(group.slots).isdisjoint(names):
            usd = total_price(cluster, paid_slots(group, there), prices)
            yield (group.max_usd_per_hour, f" of group {group.name}"), usd
