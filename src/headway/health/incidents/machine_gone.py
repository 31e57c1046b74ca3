"""Closes incidents whose machine no longer exists: scaled in, deleted by the provider, or replaced in another slot. If the group
still lacks the machine, the incident stays open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace

from headway.cluster.scaling.reclaim_notices import reclaim_notices
from headway.domain.cluster import Group
from headway.domain.incident import FaultAction, Incident, IncidentState
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.slurm.node_reasons import INCIDENT_REASON, NO_MACHINE_REASON, is_headway_reason
from headway.domain.slurm.nodes_and_jobs import OUT
from headway.health.context import HealthContext
from headway.slurm import node_commands

SURPLUS = "its machine is gone and is not to be replaced"
NO_SLOT = "its slot is no longer part of the cluster file"
NEW_MACHINE_SERVES = "its machine was recreated or restarted and is in service"
# In earlier states the node's jobs have to be moved first.
_AFTER_JOBS_MOVED = frozenset(
    {IncidentState.JOBS_MOVED, IncidentState.REPAIRING, IncidentState.TESTING, IncidentState.OUT}
)
CancelTask = Callable[[Incident], Awaitable[None]]


async def close_incidents(
    context: HealthContext, unfinished: Iterable[Incident], cancel_task: CancelTask
) -> list[Incident]:
    """Closes the incidents that are over and starts tests on replacement machines. `cancel_task` cancels the running
    repair or tests of an incident. Returns the incidents that changed, after their step."""
    due = [candidate for candidate in unfinished if _is_candidate(context, candidate)]
    if not due:
        return []
    machines = await context.machines()
    going = await reclaim_notices(context.cluster_context.provider, context.cluster)
    due = [candidate for candidate in due if _machine_changed(context, candidate, machines)]
    found = []
    for incident in await context.cluster_context.store.incidents.with_steps(due):
        moved = await _step(context, incident, machines, going)
        if moved is not None:
            await cancel_task(moved)
            found.append(moved)
    return found


def _is_candidate(context: HealthContext, incident: Incident) -> bool:
    """Returns whether this module may close the incident. While their slot exists, incidents of machines that are
    reclaimed or can't be created are handled elsewhere (`spot_reclaim`, `headway.autoscale`)."""
    if incident.action in (FaultAction.LINK, FaultAction.HOST_DISK):
        return False
    if incident.node not in context.cluster.group_of:
        return True
    if incident.action is FaultAction.MAKE:
        return False
    if not context.cluster.health.act:  # no other code moves the incident on
        return True
    return incident.action is not FaultAction.RECLAIM and incident.state in _AFTER_JOBS_MOVED


def _machine_changed(context: HealthContext, incident: Incident, machines: Mapping[str, Machine]) -> bool:
    """Returns whether the slot or its machine is gone or, for a node out of service, whether a newer machine exists."""
    machine = machines.get(incident.node)
    if incident.node not in context.cluster.group_of or machine is None:
        return True
    return incident.state is IncidentState.OUT and not 0 < machine.started_at <= incident.opened_at


async def _step(
    context: HealthContext, incident: Incident, machines: Mapping[str, Machine], going: Collection[str]
) -> Incident | None:
    """Returns the incident after a step, or None if nothing changes."""
    group = context.cluster.group_of.get(incident.node)
    machine = machines.get(incident.node)
    if group is None:  # the machine stays until its jobs have ended
        return await _close(context, incident, NO_SLOT) if machine is None else None
    if machine is not None:
        return await _with_new_machine(context, incident, machine)
    if not group_is_short(group, machines, going):
        return await close_as_surplus(context, incident)
    if incident.state is not IncidentState.OUT or incident.found("gone"):
        return None
    if group.autoscaled:
        await release_slot(context, incident.node)
    words = "its machine is gone: " + ("it will be replaced" if group.spot else "run headway apply to create another")
    return await context.add_step(incident, IncidentState.OUT, words, evidence={"gone": True})


async def _with_new_machine(context: HealthContext, incident: Incident, machine: Machine) -> Incident | None:
    """Handles a node out of service whose slot has a machine that may be a new one. Returns the incident after a step,
    or None if nothing changes."""
    states, reason = await context.node_state(incident.node)
    if not states & OUT and "NOT_RESPONDING" not in states and machine.started_at > incident.steps[-1].at:
        return await _close(context, incident, NEW_MACHINE_SERVES)
    runs = machine.state is MachineState.RUNNING
    if not (incident.found("gone") and runs and reason.startswith(INCIDENT_REASON)):
        return None
    await context.cluster_context.store.incidents.reset_score(context.cluster.name, incident.node)
    words = "another machine has replaced it: tests begin"
    return await context.add_step(incident, IncidentState.TESTING, words, evidence={"tests": True, "gone": False})


def group_is_short(group: Group, machines: Collection[str], going: Collection[str]) -> bool:
    """Returns whether the group has fewer machines than it should. `going`: nodes whose machines the provider
    reclaims."""
    return sum(name in machines and name not in going for name in group.slots) < group.min_machines


async def machine_is_surplus(context: HealthContext, node: str) -> bool:
    """Returns whether the node has no machine and its group has enough without it."""
    machines = await context.machines()
    if node in machines:
        return False
    group = context.cluster.group_of[node]
    if group.idle_s is not None and node in group.slots[: group.min_machines]:
        return False  # this slot always has a machine, however many others run
    return not group_is_short(group, machines, await reclaim_notices(context.cluster_context.provider, context.cluster))


async def close_as_surplus(context: HealthContext, incident: Incident) -> Incident:
    """Closes an incident whose machine is not needed. The next machine in the slot is a new one and starts with score
    0."""
    await release_slot(context, incident.node)
    if context.cluster_context.traits_of(context.cluster, incident.node).creates_machines:
        await context.cluster_context.store.incidents.reset_score(context.cluster.name, incident.node)
    return await _close(context, incident, SURPLUS)


async def _close(context: HealthContext, incident: Incident, words: str) -> Incident:
    """Closes the incident. The drain ended with the machine, so no node is returned to service; the next machine is set
    up and checked like any new one."""
    return await context.add_step(replace(incident, drained=False), IncidentState.RETURNED, words, drained=False)


async def release_slot(context: HealthContext, node: str) -> None:
    """Marks the slot in Slurm as empty, or lets Slurm power it up again. A reason set by a person stays."""
    states, reason = await context.node_state(node)
    if not states & OUT or not is_headway_reason(reason) or reason == NO_MACHINE_REASON:
        return
    head, run = await context.head(), context.cluster_context.connections
    if context.cluster.group_of[node].idle_s is None:
        await node_commands.set_removed_nodes_down(run, head, [node], NO_MACHINE_REASON)
    elif "DOWN" in states:  # a node that is only powered down would stay DOWN
        await node_commands.open_nodes(run, head, [node])
    else:
        await node_commands.power_down_nodes(run, head, [node])
