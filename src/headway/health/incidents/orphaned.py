"""Incidents whose machine is gone: scaled away, taken without a word, replaced in another slot. They end where nobody misses
the machine, and where another one serves in its place; a missing one stays a fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace

from headway.cluster.scaling.slot_selection import leaving
from headway.domain.cluster import Group
from headway.domain.incident import INCIDENT_REASON, Incident, IncidentState, XidClass, own
from headway.domain.machine import Machine, MachineState
from headway.domain.slots import NO_MACHINE
from headway.domain.slurm.state import OUT
from headway.health.context import Tools
from headway.slurm import commands

NOT_MISSED = "its machine is gone, and none is wanted in its place"
NO_SLOT = "its slot is no longer part of the cluster file"
ANOTHER = "its machine was made or started anew since, and serves"
# Before, jobs leave the node first.
_LATER = frozenset({IncidentState.JOBS_MOVED, IncidentState.REPAIRING, IncidentState.TESTING, IncidentState.OUT})
LetBe = Callable[[Incident], Awaitable[None]]


async def look(tools: Tools, unfinished: Iterable[Incident], let_be: LetBe) -> list[Incident]:
    """Ends those of these that are over, begins the tests of machines that came for lost ones. `let_be` ends what is under
    way for one. Those that took a step, after it."""
    due = [one for one in unfinished if _concerns(tools, one)]
    if not due:
        return []
    machines = await tools.machines()
    going = await leaving(tools.env.provider, tools.cluster)
    due = [one for one in due if _changed(tools, one, machines)]
    found = []
    for incident in await tools.env.store.with_steps(due):
        moved = await _moved(tools, incident, machines, going)
        if moved is not None:
            await let_be(moved)
            found.append(moved)
    return found


def _concerns(tools: Tools, incident: Incident) -> bool:
    """Machines that are taken back, and those that can't be made, are led by others while their slot is there."""
    if incident.node not in tools.cluster.group_of:
        return True
    if incident.action is XidClass.MAKE:
        return False
    if not tools.cluster.health.act:  # nobody leads it anywhere
        return True
    return incident.action is not XidClass.RECLAIM and incident.state in _LATER


def _changed(tools: Tools, incident: Incident, machines: Mapping[str, Machine]) -> bool:
    machine = machines.get(incident.node)
    if incident.node not in tools.cluster.group_of or machine is None:
        return True
    return incident.state is IncidentState.OUT and not 0 < machine.started_at <= incident.opened_at


async def _moved(
    tools: Tools, incident: Incident, machines: Mapping[str, Machine], going: Collection[str]
) -> Incident | None:
    """The incident after a step; None where nothing is to be said."""
    group = tools.cluster.group_of.get(incident.node)
    machine = machines.get(incident.node)
    if group is None:  # jobs may be waited for before the machine goes
        return await _over(tools, incident, NO_SLOT) if machine is None else None
    if machine is not None:
        return await _comes(tools, incident, machine)
    if not missed(group, machines, going):
        return await end(tools, incident)
    if incident.state is not IncidentState.OUT or incident.found("gone"):
        return None
    if group.autoscaled:
        await free(tools, incident.node)
    words = "its machine is gone: " + ("another is to come" if group.spot else "headway apply makes another")
    return await tools.go(incident, IncidentState.OUT, words, evidence={"gone": True})


async def _comes(tools: Tools, incident: Incident, machine: Machine) -> Incident | None:
    """Out of service, and there is a machine that may be another one."""
    states, reason = await tools.node_now(incident.node)
    if not states & OUT and "NOT_RESPONDING" not in states and machine.started_at > incident.steps[-1].at:
        return await _over(tools, incident, ANOTHER)
    runs = machine.state is MachineState.RUNNING
    if not (incident.found("gone") and runs and reason.startswith(INCIDENT_REASON)):
        return None
    await tools.env.store.forgive(tools.cluster.name, incident.node)
    words = "another machine is in its place: tests begin"
    return await tools.go(incident, IncidentState.TESTING, words, evidence={"tests": True, "gone": False})


def missed(group: Group, machines: Collection[str], going: Collection[str]) -> bool:
    """Whether the group has fewer machines than it should. `going`: those that are taken back."""
    return sum(name in machines and name not in going for name in group.slots) < group.wanted


async def nobody_misses(tools: Tools, node: str) -> bool:
    """Whether the node has no machine, and its group none too few."""
    machines = await tools.machines()
    if node in machines:
        return False
    group = tools.cluster.group_of[node]
    if group.idle_s is not None and node in group.slots[: group.wanted]:
        return False  # it always runs, whoever else does
    return not missed(group, machines, await leaving(tools.env.provider, tools.cluster))


async def end(tools: Tools, incident: Incident) -> Incident:
    """Nobody misses its machine. The next one in its slot is another, and nothing speaks against it."""
    await free(tools, incident.node)
    if tools.env.provider.traits.creates_machines:
        await tools.env.store.forgive(tools.cluster.name, incident.node)
    return await _over(tools, incident, NOT_MISSED)


async def _over(tools: Tools, incident: Incident, words: str) -> Incident:
    """The drain ended with the machine: nothing is returned to service, and what comes is set up and checked as any new one."""
    return await tools.go(replace(incident, drained=False), IncidentState.RETURNED, words, drained=False)


async def free(tools: Tools, node: str) -> None:
    """Slurm has the slot as one without a machine, or may ask for it again. What somebody else has said of it stays."""
    states, reason = await tools.node_now(node)
    if not states & OUT or not own(reason) or reason == NO_MACHINE:
        return
    head, run = await tools.head(), tools.env.connections
    if tools.cluster.group_of[node].idle_s is None:
        await commands.nodes_gone(run, head, [node], NO_MACHINE)
    elif "DOWN" in states:  # which it would stay, switched off
        await commands.nodes_open(run, head, [node])
    else:
        await commands.node_sleeps(run, head, node)
