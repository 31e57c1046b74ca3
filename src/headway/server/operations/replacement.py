"""Replace: the machine of a broken node is deleted and made again."""

from __future__ import annotations

from headway.domain.operation import ReplaceParams
from headway.server.operations.run import OperationRun


async def replace_machine(run: OperationRun) -> tuple[str, ...]:
    """A second attempt does not know how far the first one came, so it makes the machine again in any case."""
    operation = run.operation
    _, cluster = await run.state.cluster(operation.cluster)
    since = operation.created_at if operation.attempts == 1 else None
    await run.state.work.replace(cluster, run.say, ReplaceParams.from_json(operation.params).node, since)
    return ()
