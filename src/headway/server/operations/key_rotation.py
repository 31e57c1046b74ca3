"""Handler of key rotation."""

from __future__ import annotations

from headway.domain.operation_kinds import RotateParams
from headway.server.operations.operation_run import OperationRun


async def rotate_key(run: OperationRun) -> tuple[str, ...]:
    """Replaces a key of a cluster."""
    state, name = run.state, run.operation.cluster
    params = RotateParams.from_json(run.operation.params)
    _, cluster = await state.clusters.get(name)

    async def begins() -> None:
        await state.store.clusters.save(name, state="changing")

    try:
        await state.backend.keys.rotate_key(cluster, run.report, params.what, params.ref, begins)
    finally:
        await state.forget(name)  # the head may have the new key already, even after an error
    return ()
