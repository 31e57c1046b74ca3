"""The handler of replace operations."""

from __future__ import annotations

from headway.domain.operation_kinds import ReplaceParams
from headway.server.operations.operation_run import OperationRun


async def replace_machine(run: OperationRun) -> tuple[str, ...]:
    """Deletes the machine of a broken node and creates it again. A second attempt does not know how far the first
    one came, so it recreates the machine in any case."""
    operation = run.operation
    _, cluster = await run.state.clusters.get(operation.cluster)
    since = operation.created_at if operation.attempts == 1 else None
    await run.state.backend.lifecycle.replace_machine(
        cluster, run.report, ReplaceParams.from_json(operation.params).node, since
    )
    return ()
