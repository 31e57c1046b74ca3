"""Fabric tests: bandwidth between idle nodes."""

from __future__ import annotations

from headway.domain.operation_kinds import FabricTestParams
from headway.domain.slurm.hostlist import expand
from headway.errors import NotFound, Refused
from headway.schemas.nodes.fabric_tests import FabricTestIn, FabricTestOut
from headway.schemas.operations import OperationOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.cluster.operations import queue_operation

_MOST = 20_000  # nodes


async def start_fabric_test(state: AppState, who: Principal, name: str, request: FabricTestIn) -> OperationOut:
    """Queues a fabric test. Raises NotFound for a node that the cluster does not have, Refused for fewer than two."""
    _, cluster = await state.clusters.get(name)
    try:
        nodes = list(dict.fromkeys(expand(request.nodes, _MOST)))
    except ValueError as error:
        raise Refused(f"nodes: {error}", hint=f"--nodes {name}-1-[1-4],{name}-2-1") from None
    slots = set(cluster.slot_names)
    unknown = next((node for node in nodes if node not in slots), None)
    if unknown is not None:
        raise NotFound(f"{name} has no node {unknown}", hint=f"headway nodes {name}")
    if len(nodes) == 1 or (not nodes and len(slots) < 2):
        raise Refused("a fabric test needs two nodes or more", hint="name more nodes, or none for all idle ones")
    params = FabricTestParams(nodes)
    operation = await queue_operation(state, name, who.person, params, key=who.idempotency_key)
    await write_audit_line(state, who, "fabric.test", name, operation=operation.id, nodes=request.nodes)
    return operation_out(operation)


async def latest_fabric_test(state: AppState, name: str) -> FabricTestOut | None:
    """Returns the newest result of the cluster; None if its fabric was never measured."""
    found = await state.store.fabric_tests.latest(name, 1)
    return FabricTestOut.model_validate(found[0]) if found else None


async def get_fabric_test(state: AppState, name: str) -> FabricTestOut:
    """Returns the newest result of the cluster. Raises NotFound if its fabric was never measured."""
    await state.clusters.row(name)
    found = await latest_fabric_test(state, name)
    if found is None:
        raise NotFound(f"the fabric of {name} was never measured", hint=f"headway test fabric {name}")
    return found
