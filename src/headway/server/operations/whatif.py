"""The handler of what-ifs."""

from __future__ import annotations

from headway.domain.operation_kinds import WhatIfParams
from headway.server.operations.operation_run import OperationRun
from headway.services.cluster.whatif import changed_cluster, changes_in_words


async def replay_queue(run: OperationRun) -> tuple[str, ...]:
    """Replays the queue of the cluster, as it is and changed, and stores the result. Nothing of the cluster changes."""
    state, operation = run.state, run.operation
    params = WhatIfParams.from_json(operation.params)
    cluster, changed = await changed_cluster(state, operation.cluster, params)
    # The backend runs one replay at a time, up to an hour each, in containers: what-ifs take no place of other operations.
    state.waiting.add(operation.id)
    state.wake.set()
    result = await state.backend.whatif.replay(cluster, changed, params.since, params.until, operation.id, run.report)
    now = state.clock()
    result = result.model_copy(
        update={"cluster": cluster.name, "operation": operation.id, "at": now, "changes": changes_in_words(params)}
    )
    await state.store.whatifs.record(cluster.name, operation.id, now, result.model_dump())
    return ()
