"""Nodes: the list, one node, and what operators do with it."""

from __future__ import annotations

import re

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Operator, State
from headway.api.http.pagination import ANY, Page, States, Text, Words, fits, says
from headway.schemas.clusters import NodeOut
from headway.schemas.nodes import DeedOut, DoneOut, DrainIn, NodeDetailOut, NodeTestIn, RebootIn
from headway.services.cluster import nodes as service
from headway.services.mappers import node_outs

router = APIRouter(prefix="/clusters/{name}/nodes", tags=["nodes"])


@router.get("")
async def nodes(
    name: str,
    state: State,
    _: Anyone,
    page: Page,
    status: States = ANY,
    role: Words = ANY,
    leaf: Words = ANY,
    partition: Words = ANY,
    usable: bool | None = None,
    q: Text = "",
) -> list[NodeOut]:
    """The head and every node of the cluster's file, as last seen."""
    cluster = await state.cached_cluster(name)
    found = [
        one
        for one in node_outs(cluster, await state.cached_snapshot(cluster))
        if fits(one.role, role)
        and fits(one.leaf, leaf)
        and (not status or not {word.upper() for word in status}.isdisjoint(one.states))
        and (not partition or not partition.isdisjoint(one.partitions))
        and usable in (None, one.usable)
        and says(q, one.name, one.reason)
    ]
    return page.cut(found, lambda one: (one.role != "head", *_natural_key(one.name)))


def _natural_key(name: str) -> tuple[str | int, ...]:
    """Sorts lab-1-2 before lab-1-10."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))


@router.get("/{node}")
async def node(name: str, node: str, state: State, _: Anyone) -> NodeDetailOut:
    """As last read."""
    return await service.get_node(state, name, node)


@router.post("/{node}/drain")
async def drain(name: str, node: str, ask: DrainIn, state: State, who: Operator) -> DoneOut:
    """Running jobs go on; no new job starts there until the node is returned to service."""
    return await service.drain_node(state, who, name, node, ask.reason)


@router.post("/{node}/return")
async def bring_back(name: str, node: str, state: State, who: Operator) -> DoneOut:
    """Back to service. A node with an open incident is tested first; the answer waits for its tests."""
    return await service.return_node(state, who, name, node)


@router.post("/{node}/reboot", status_code=202)
async def reboot(name: str, node: str, ask: RebootIn, state: State, who: Operator) -> DeedOut:
    """Only without jobs there, or with `busy`. Goes on after the answer: GET the node for its result. A node that was in
    service returns by itself once its tests have passed."""
    return await service.start_reboot(state, who, name, node, busy=ask.busy)


@router.post("/{node}/test", status_code=202)
async def test(name: str, node: str, ask: NodeTestIn, state: State, who: Operator) -> DeedOut:
    """Runs the node's tests and changes nothing. `hard` ones only where no job runs. Goes on after the answer."""
    return await service.start_tests(state, who, name, node, hard=ask.hard)
