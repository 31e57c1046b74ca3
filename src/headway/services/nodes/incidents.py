"""Incidents of nodes, and injected faults."""

from __future__ import annotations

from headway.errors import NotFound
from headway.health.policy import flaky_score
from headway.schemas.nodes.incidents import FaultIn, IncidentOut, InjectedFaultOut, NodeHistoryOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.nodes.incident_to_schema import incident_out


async def get_incident(state: AppState, name: str, number: int) -> IncidentOut:
    """Returns an incident. Raises NotFound, also for an incident of another cluster."""
    await state.clusters.row(name)
    found = await state.store.incidents.get(number) if number else None
    if found is None or found.cluster != name:
        raise NotFound(f"{name} has no incident {number}", hint=f"headway incidents {name}")
    return incident_out(found)


async def return_from_incident(
    state: AppState, who: Principal, name: str, number: int, *, false_alarm: bool
) -> IncidentOut:
    """Tests the node and returns it to service. Returns the closed incident."""
    _, cluster = await state.clusters.get(name)
    await get_incident(state, name, number)
    done = await state.backend.nodes.return_incident_node(cluster, number, who.person, false_alarm=false_alarm)
    await write_audit_line(state, who, "incident.return", f"{name}/{number}", false_alarm=false_alarm)
    state.live.add_recent_event(name, f"incident {number}: {done.steps[-1].text}", where=done.node)
    return incident_out(done)


async def get_node_history(state: AppState, name: str, node: str) -> NodeHistoryOut:
    """Returns the node's incidents and the score that results from them. Raises NotFound."""
    cluster = (await state.clusters.get(name))[1]
    if node not in cluster.slot_names:
        raise NotFound(f"{name} has no node {node}", hint=f"headway nodes {name}")
    found = await state.store.incidents.search(name, node=node)
    now = state.clock()
    return NodeHistoryOut(
        node=node,
        score=flaky_score.node_score(found, cluster.health, now),
        limit=cluster.health.flaky_score,
        days=cluster.health.flaky_days,
        why_out=flaky_score.keep_out_reason(found, cluster.health, now)
        or flaky_score.flaky_reason(found, cluster.health, now),
        incidents=[incident_out(await state.store.incidents.get(incident.number)) for incident in found],
    )


async def inject_fault(state: AppState, who: Principal, name: str, request: FaultIn) -> InjectedFaultOut:
    """Injects or heals a fault. Raises Refused where real machines do the work, unless `request.force`."""
    _, cluster = await state.clusters.get(name)
    done = await state.backend.nodes.inject_fault(cluster, request)
    await write_audit_line(
        state, who, "fault", f"{name}/{request.node}", kind=request.kind, code=request.code, heal=request.heal
    )
    return InjectedFaultOut(done=done)
