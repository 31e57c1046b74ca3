"""The handler of fabric tests."""

from __future__ import annotations

from headway.domain.operation_kinds import FabricTestParams
from headway.server.operations.operation_run import OperationRun
from headway.services.cluster.operations import queued_operations


async def test_fabric(run: OperationRun) -> tuple[str, ...]:
    """Measures the fabric and stores the result. It ends early, with what was measured so far, when another operation of
    the cluster waits."""
    state, operation = run.state, run.operation
    _, cluster = await state.clusters.get(operation.cluster)
    params = FabricTestParams.from_json(operation.params)

    async def waits() -> bool:
        return bool(await queued_operations(state, cluster.name))

    result = await state.backend.fabric.test_fabric(cluster, tuple(params.nodes), run.report, waits)
    now = state.clock()
    result = result.model_copy(update={"operation": operation.id, "at": now})
    await state.store.fabric_tests.record(cluster.name, operation.id, now, result.model_dump())
    for finding in result.findings:
        state.live.add_recent_event(cluster.name, f"fabric test: {finding.what}", level="error", where=finding.name)
    for mismatch in result.mismatches:
        state.live.add_recent_event(cluster.name, f"fabric test: {mismatch.what}; {mismatch.remedy}", level="warning")
    return ()
