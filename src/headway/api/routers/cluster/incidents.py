"""Incidents of nodes, and injected faults."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Operator, State
from headway.api.http.pagination import ANY, DEEP, Page, States, Text, Words, contains, fits
from headway.api.http.path_numbers import PathNumber
from headway.schemas.base import API_PREFIX
from headway.schemas.nodes.incidents import FaultIn, IncidentOut, InjectedFaultOut, NodeHistoryOut, ReturnIn
from headway.services.nodes import incidents as service
from headway.services.nodes.incident_to_schema import incident_out

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["incidents"])


@router.get("/incidents")
async def list_incidents(
    name: str,
    state: State,
    _: Anyone,
    page: Page,
    node: Words = ANY,
    status: States = ANY,
    q: Text = "",
    steps: bool = False,
) -> list[IncidentOut]:
    """Returns the incidents, the latest first. With `steps` each has its steps, the jobs it requeued, and the times
    that follow from them."""
    await state.clusters.row(name)
    found = [
        row
        for row in await state.store.incidents.search(name, limit=DEEP, unfinished=status == {"open"})
        if fits(row.node, node)
        and (fits(row.state.value, status) or ("closed" if row.state.closed else "open") in status)
        and contains(q, row.what, row.node)
    ]
    shown = page.cut(found, lambda row: (row.number,), newest=True)
    return [incident_out(row) for row in (await state.store.incidents.with_steps(shown) if steps else shown)]


@router.get("/incidents/{number}")
async def get_incident(name: str, number: PathNumber, state: State, _: Anyone) -> IncidentOut:
    """Returns one incident with its steps."""
    return await service.get_incident(state, name, number)


@router.post("/incidents/{number}/return")
async def bring_back(name: str, number: PathNumber, body: ReturnIn, state: State, who: Operator) -> IncidentOut:
    """Tests the node and returns it to service."""
    return await service.return_from_incident(state, who, name, number, false_alarm=body.false_alarm)


@router.get("/nodes/{node}/history")
async def get_node_history(name: str, node: str, state: State, _: Anyone) -> NodeHistoryOut:
    """Returns a node's incidents, and the score that results from them."""
    return await service.get_node_history(state, name, node)


@router.post("/faults", name="fault")
async def inject_fault(name: str, body: FaultIn, state: State, who: Operator) -> InjectedFaultOut:
    """Injects a fault into a cluster, or heals it. Refused where real machines do the work, unless `force` is set."""
    return await service.inject_fault(state, who, name, body)
