"""Incidents of machines that can't be created: one per group, from the first failed try until a machine is in service. Also
incidents of machines that can't be deleted: one per machine, until it is deleted or used again.

seen ──► repairing ──► returned
           └ a step for each failed try
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headway.autoscale.planner import StateAndReason
from headway.domain.cluster import Cluster, Group
from headway.domain.incident import FaultAction, Incident, IncidentState
from headway.domain.machines.machine import Machine
from headway.domain.slurm.node_reasons import CLOSED_REASON
from headway.health.incidents.machine_gone import group_is_short
from headway.slurm import node_commands
from headway.store import Store

NOT_CREATED = "a machine can't be made"
NOT_DELETED = "a machine can't be given back"
GROUP_COMPLETE = "the group has all its machines"
# seconds after the earliest next try; without a request until then the group needs no machine
NO_DEMAND_S = 600.0


async def note_failed_creation(
    cluster: Cluster, store: Store, group: Group, node: str, why: str, now: float, until: float
) -> None:
    """Records a failed creation in the group's incident. `until`: unix seconds before which there is no further try."""
    unmade = [candidate for candidate in await _open_incidents(cluster, store) if candidate.what == NOT_CREATED]
    found = [candidate for candidate in unmade if cluster.group_of.get(candidate.node) is group]
    if found:
        incident = found[0]
    else:
        incident = await store.incidents.open(
            cluster.name, node, NOT_CREATED, FaultAction.MAKE, now, {"group": group.name}
        )
    await _note_attempt(store, incident, f"{node}: {why}", now, until)


async def note_failed_deletion(cluster: Cluster, store: Store, node: str, why: str, now: float, until: float) -> None:
    """Records a failed deletion in the machine's incident. `until`: unix seconds before which there is no further
    try."""
    found = [
        candidate
        for candidate in await _open_incidents(cluster, store)
        if candidate.what == NOT_DELETED and candidate.node == node
    ]
    incident = (
        found[0] if found else await store.incidents.open(cluster.name, node, NOT_DELETED, FaultAction.MAKE, now, {})
    )
    await _note_attempt(store, incident, why, now, until)


async def _note_attempt(store: Store, incident: Incident, why: str, now: float, until: float) -> None:
    """Adds a failed try to the incident."""
    words = why + (f"; the next try in {until - now:.0f} s at the earliest" if until > now else "")
    evidence = {"until": until}
    await store.incidents.add_step(incident, IncidentState.REPAIRING, words, evidence=evidence, last_symptom_at=now)


async def close_resolved(
    cluster: Cluster,
    store: Store,
    states: Mapping[str, StateAndReason],
    machines: Mapping[str, Machine],
    making: Collection[str],
    now: float,
    going: Collection[str] = (),
) -> list[tuple[str, str]]:
    """Closes incidents of groups that have a new machine or need no more machines, and of machines that are deleted or
    in use again. `going`: nodes whose machines leave. Returns messages."""
    messages = []
    for incident in await _open_incidents(cluster, store):
        group = cluster.group_of.get(incident.node)
        words = "its slot is no longer part of the cluster file"
        if group is not None and incident.what == NOT_DELETED:
            words = _deletion_resolved(incident.node, states, machines)
        elif group is not None:
            words = await _creation_resolved(store, group, incident, states, machines, making, now)
            if not words and group.idle_s is None and not making and not group_is_short(group, machines, going):
                words = GROUP_COMPLETE
        if words:
            await store.incidents.add_step(incident, IncidentState.RETURNED, words)
            messages.append((incident.node, words))
    return messages


def _deletion_resolved(node: str, states: Mapping[str, StateAndReason], machines: Mapping[str, Machine]) -> str:
    """Returns why an incident of a machine that could not be deleted is over, "" while it is not."""
    if node not in machines:
        return "it is gone"
    return "Slurm needs it again" if node_commands.is_in_service(states.get(node, ("", ""))[0]) else ""


async def _creation_resolved(
    store: Store,
    group: Group,
    incident: Incident,
    states: Mapping[str, StateAndReason],
    machines: Mapping[str, Machine],
    making: Collection[str],
    now: float,
) -> str:
    """Returns why an incident of a machine that could not be created is over, "" while it is not."""
    for name in group.slots:
        machine = machines.get(name)
        new = machine is not None and name not in making and machine.started_at > incident.last_symptom_at
        if new and node_commands.is_in_service(states.get(name, ("", ""))[0]):
            return f"{name} is ready"
    needed = any(
        name in making
        or states.get(name, ("", ""))[0].endswith("#")
        or states.get(name, ("", ""))[1].startswith(CLOSED_REASON)
        for name in group.slots
    )
    until = (await store.incidents.get(incident.number)).found("until")
    if not needed and isinstance(until, int | float) and now > until + NO_DEMAND_S:
        return "no other machine was requested since"
    return ""


async def _open_incidents(cluster: Cluster, store: Store) -> list[Incident]:
    """Returns the open incidents of machines that can't be created or deleted."""
    found = await store.incidents.search(cluster.name, unfinished=True)
    return [incident for incident in found if incident.action is FaultAction.MAKE]
