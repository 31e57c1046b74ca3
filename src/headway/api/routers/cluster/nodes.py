"""Nodes: the list, one node, and the actions of operators."""

from __future__ import annotations

from itertools import chain

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Operator, State
from headway.api.http.pagination import ANY, Page, States, Text, Words, contains, fits
from headway.domain.slurm.hostlist import natural_key
from headway.schemas.base import API_PREFIX
from headway.schemas.nodes.nodes import DoneOut, DrainIn, NodeActionOut, NodeDetailOut, NodeOut, NodeTestIn, RebootIn
from headway.services.nodes import node_actions as service
from headway.services.nodes.node_details import load_node_details
from headway.services.nodes.nodes_to_schema import node_outs

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/nodes", tags=["nodes"])


@router.get("")
async def list_nodes(
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
    """Returns the head and every node of the cluster's file, as last read from Slurm."""
    cluster = await state.clusters.cached(name)
    found = [
        node_out
        for node_out in node_outs(cluster, await state.readings.snapshot(cluster))
        if fits(node_out.role, role)
        and fits(node_out.leaf, leaf)
        and (not status or not {word.upper() for word in status}.isdisjoint(node_out.states))
        and (not partition or not partition.isdisjoint(node_out.partitions))
        and usable in (None, node_out.usable)
        and contains(q, node_out.name, node_out.reason)
    ]
    return page.cut(found, lambda node_out: (node_out.role != "head", *chain.from_iterable(natural_key(node_out.name))))


@router.get("/{node}")
async def get_node(name: str, node: str, state: State, _: Anyone) -> NodeDetailOut:
    """Returns one node, as last read from Slurm."""
    return await load_node_details(state, name, node)


@router.post("/{node}/drain", name="drain")
async def drain_node(name: str, node: str, body: DrainIn, state: State, who: Operator) -> DoneOut:
    """Drains the node. Running jobs continue; no new job starts there until the node is returned to service."""
    return await service.drain_node(state, who, name, node, body.reason)


@router.post("/{node}/return")
async def bring_back(name: str, node: str, state: State, who: Operator) -> DoneOut:
    """Returns the node to service. A node with an open incident is tested first, and the response waits for the tests."""
    return await service.return_node(state, who, name, node)


@router.post("/{node}/reboot", status_code=202, name="reboot")
async def reboot_node(name: str, node: str, body: RebootIn, state: State, who: Operator) -> NodeActionOut:
    """Reboots the node. Refused while jobs run there, unless `busy` is set. The reboot continues after the response:
    GET the node for its result. A node that was in service is returned to service automatically once its tests have
    passed."""
    return await service.start_reboot(state, who, name, node, busy=body.busy)


@router.post("/{node}/test", status_code=202, name="test")
async def test_node(name: str, node: str, body: NodeTestIn, state: State, who: Operator) -> NodeActionOut:
    """Runs the node's tests and changes nothing. With `hard` it is refused while a job runs there. The tests continue
    after the response: GET the node for the result."""
    return await service.start_tests(state, who, name, node, hard=body.hard)
