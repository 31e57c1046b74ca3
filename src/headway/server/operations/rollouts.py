"""The operation that rolls out another node image. While it waits for nodes the cluster stays ready, faults are
handled, and operations that are queued meanwhile run first."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.operation_kinds import OperationKind, RollParams
from headway.domain.operation_progress import ReportProgress
from headway.server.operations.operation_run import OperationRun
from headway.services.app_state import AppState
from headway.services.cluster.operations import queue_operation, queued_operations
from headway.store import Operation, OperationAsk
from headway.store.clusters.operations import UNFINISHED

_TAKES_OVER = (OperationKind.ROLL, OperationKind.DOWN)


async def roll_cluster(run: OperationRun) -> tuple[str, ...]:
    """Returns the id of the operation that continues it; () when it is done, or another rollout or a down takes over."""
    return await RolloutOperation(run.state, run.operation, run.report).run()


async def queue_node_rollout(
    state: AppState, operation: Operation, cluster: Cluster, deadline: Deadline | None
) -> tuple[str, ...]:
    """Queues the rollout of the nodes if the heads run another Slurm version and no rollout is queued or running.
    Returns its id."""
    if not await state.backend.rollouts.nodes_await_rollout(cluster):
        return ()
    rollouts = OperationAsk(cluster.name, kinds=(OperationKind.ROLL,), states=UNFINISHED)
    if await state.store.operations.search(rollouts, limit=1):
        return ()
    params = RollParams(until=deadline.at if deadline else None)
    following = await queue_operation(state, cluster.name, operation.person, params)
    return (following.id,)


class RolloutOperation:
    """Carries out operations of the kind roll."""

    def __init__(self, state: AppState, operation: Operation, report: ReportProgress) -> None:
        self._state = state
        self._operation = operation
        self._report = report

    async def run(self) -> tuple[str, ...]:
        """Runs the rollout. Returns the id of the operation that continues it; () when it is done or another rollout
        or a down takes over."""
        state, name = self._state, self._operation.cluster
        params = RollParams.from_json(self._operation.params)
        row, cluster = await state.clusters.get(name)
        if params.stop:
            await state.backend.rollouts.halt_rollout(cluster, self._report)
            return ()
        back, until = params.back, params.until
        # If a server was stopped while the head was being recreated, there is no controller, and nodes can't be
        # checked.
        state.waiting.add(self._operation.id)  # it may take days, a node or two at a time
        state.wake.set()
        at_the_head = params.head and row.state == "changing"
        if not at_the_head and not await state.backend.rollouts.roll_nodes(
            cluster, self._report, self._waits, back=back, until=until
        ):
            return await self._go_on_later()
        if params.head:
            state.waiting.discard(self._operation.id)
            await state.store.clusters.save(name, state="changing")
            state.live.notify_row_changed(name)
            await state.backend.rollouts.roll_heads(cluster, self._report, back=back)
            await state.store.clusters.save(name, state="ready")
            await state.forget(name)  # open connections lead to the machine before
        return ()

    async def _waits(self) -> bool:
        return bool(await queued_operations(self._state, self._operation.cluster))

    async def _go_on_later(self) -> tuple[str, ...]:
        mine = self._operation
        if any(operation.kind in _TAKES_OVER for operation in await queued_operations(self._state, mine.cluster)):
            return ()
        params = RollParams.from_json(mine.params)
        following = await queue_operation(self._state, mine.cluster, mine.person, params)
        return (following.id,)
