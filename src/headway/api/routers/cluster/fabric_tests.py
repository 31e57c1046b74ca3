"""Fabric tests: bandwidth between idle nodes."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Operator, State
from headway.schemas.base import API_PREFIX
from headway.schemas.nodes.fabric_tests import FabricTestIn, FabricTestOut
from headway.schemas.operations import OperationOut
from headway.services.nodes.fabric_tests import get_fabric_test, start_fabric_test

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/fabric-test", tags=["nodes"])


@router.get("")
async def fabric_test(name: str, state: State, _: Anyone) -> FabricTestOut:
    """Returns the result of the latest fabric test."""
    return await get_fabric_test(state, name)


@router.post("", status_code=202)
async def test_fabric(name: str, request: FabricTestIn, state: State, who: Operator) -> OperationOut:
    """Queues a fabric test: all-reduces between idle nodes, in pairs and together, until what is slow is named. No job
    waits for it: a node where a job starts leaves the test."""
    return await start_fabric_test(state, who, name, request)
