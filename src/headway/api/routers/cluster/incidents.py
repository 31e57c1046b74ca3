"""Faults of nodes, and making them."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Operator, PathNumber, State
from headway.api.http.pagination import ANY, DEEP, Page, States, Text, Words, fits, says
from headway.errors import NotFound
from headway.health.policy import repair_ladder
from headway.schemas.incidents import FaultIn, FaultMadeOut, IncidentOut, NodeHistoryOut, ReturnIn
from headway.services.authorization import write_audit_line
from headway.services.mappers import incident_out

router = APIRouter(prefix="/clusters/{name}", tags=["incidents"])


@router.get("/incidents")
async def incidents(
    name: str,
    state: State,
    _: Anyone,
    page: Page,
    node: Words = ANY,
    status: States = ANY,
    q: Text = "",
    steps: bool = False,
) -> list[IncidentOut]:
    """The latest first; with `steps` also the steps of each, the jobs it moved, and its times, which follow from them."""
    await state.row(name)
    found = [
        one
        for one in await state.store.incidents.search(name, limit=DEEP)
        if fits(one.node, node)
        and (fits(one.state.value, status) or ("closed" if one.state.closed else "open") in status)
        and says(q, one.what, one.node)
    ]
    shown = page.cut(found, lambda one: (one.number,), newest=True)
    return [incident_out(one) for one in (await state.store.incidents.with_steps(shown) if steps else shown)]


@router.get("/incidents/{number}")
async def incident(name: str, number: PathNumber, state: State, _: Anyone) -> IncidentOut:
    await state.row(name)
    found = await state.store.incidents.get(number) if number else None
    if found is None or found.cluster != name:
        raise NotFound(f"{name} has no incident {number}", hint=f"headway incidents {name}")
    return incident_out(found)


@router.post("/incidents/{number}/return")
async def bring_back(name: str, number: PathNumber, ask: ReturnIn, state: State, who: Operator) -> IncidentOut:
    """The node is tested and returned to service."""
    _, cluster = await state.cluster(name)
    await incident(name, number, state, who)
    done = await state.work.bring_back(cluster, number, who.person, false_alarm=ask.false_alarm)
    await write_audit_line(state, who, "incident.return", f"{name}/{number}", false_alarm=ask.false_alarm)
    state.live.note(name, f"incident {number}: {done.steps[-1].text}", where=done.node)
    return incident_out(done)


@router.get("/nodes/{node}/history")
async def history(name: str, node: str, state: State, _: Anyone) -> NodeHistoryOut:
    """What a node's incidents were, and what they say against it."""
    cluster = (await state.cluster(name))[1]
    if node not in cluster.slot_names:
        raise NotFound(f"{name} has no node {node}", hint=f"headway nodes {name}")
    found = await state.store.incidents.search(name, node=node)
    now = state.clock()
    return NodeHistoryOut(
        node=node,
        score=repair_ladder.node_score(found, cluster.health, now),
        limit=cluster.health.lemon_score,
        days=cluster.health.lemon_days,
        why_out=repair_ladder.keep_out_reason(found, cluster.health, now)
        or repair_ladder.spare_work_reason(found, cluster.health, now),
        incidents=[incident_out(await state.store.incidents.get(one.number)) for one in found],
    )


@router.post("/faults")
async def fault(name: str, ask: FaultIn, state: State, who: Operator) -> FaultMadeOut:
    """Makes a fault on a local cluster, or heals it."""
    _, cluster = await state.cluster(name)
    done = await state.work.inject(cluster, ask)
    await write_audit_line(state, who, "fault", f"{name}/{ask.node}", kind=ask.kind, code=ask.code, heal=ask.heal)
    return FaultMadeOut(done=done)
