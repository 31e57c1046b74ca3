"""Operations that wait for jobs on nodes to be removed, possibly for days. Meanwhile the cluster stays ready, faults
are handled, and operations that are queued run first."""

from __future__ import annotations

from collections.abc import Collection

from headway.domain.cluster import Cluster
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.operation_kinds import ApplyParams, OperationKind, ScaleParams
from headway.domain.operation_progress import ReportProgress
from headway.services.app_state import AppState
from headway.services.cluster.operations import queue_operation, queued_operations
from headway.store import Operation

# A restore keeps surplus nodes: it is not known which of them the backup's jobs run on.
ENDS = (OperationKind.DOWN, OperationKind.RESTORE)


class ScaleInWait:
    """Implements headway.services.cluster_backend.WaitForJobs for one apply or scale. `deadline`: the apply's."""

    def __init__(
        self, state: AppState, operation: Operation, cluster: Cluster, report: ReportProgress, deadline: Deadline | None
    ) -> None:
        self._state = state
        self._operation = operation
        self._cluster = cluster
        self._report = report
        self._deadline = deadline
        self._waits = False
        self._nodes: frozenset[str] = frozenset()  # nodes whose jobs are waited for
        self._waited_for: frozenset[str] = frozenset()  # the groups of these nodes

    async def begin(self) -> None:
        """Marks the operation as waiting and the cluster as ready."""
        if not self._waits:
            self._waits = True
            self._state.waiting.add(self._operation.id)
            self._state.wake.set()
            await self._turn("ready")

    async def end(self) -> None:
        """Marks the operation as working again and the cluster as changing."""
        if self._waits:
            self._waits = False
            self._state.waiting.discard(self._operation.id)
            await self._turn("changing")

    async def others(self, nodes: Collection[str]) -> bool:
        """Returns whether a queued operation should run before this one continues. Rollouts do not count because
        they give way themselves, nor do operations that continue another. An operation with its own deadline would
        end jobs here at that deadline: it has to wait, unless it covers all groups whose jobs are waited for."""
        groups, self._nodes = self._cluster.group_of, frozenset(nodes)
        self._waited_for = frozenset(groups[name].name for name in nodes if name in groups)
        others = [
            operation
            for operation in await queued_operations(self._state, self._operation.cluster)
            if operation.kind is not OperationKind.ROLL and not ApplyParams.from_json(operation.params).continues
        ]
        if any(operation.kind in ENDS for operation in others):
            return True
        return bool(others) and all(self._replaces(operation) or not _has_deadline(operation) for operation in others)

    async def go_on_later(self) -> tuple[str, ...]:
        """Queues the operation that continues this one and returns its id. It applies the file as it is by then, so
        an operation that runs first may have undone the change. It does nothing if an operation that replaces it was
        carried out (`was_replaced`)."""
        mine = self._operation
        instead = [
            operation.id
            for operation in await queued_operations(self._state, self._operation.cluster)
            if self._replaces(operation)
        ]
        words = "a newer request replaced it" if instead else "another operation runs first"
        await self._report(mine.kind, f"{words}; nodes to be removed stay drained", level="warning", done=True)
        row = await self._state.store.clusters.get(mine.cluster)
        params = ScaleParams(
            confirmed=True,
            instead=instead,
            until=self._deadline.at if self._deadline else None,
            nodes=sorted(self._nodes),
        )
        following = await queue_operation(
            self._state, mine.cluster, mine.person, params, document=row.document if row else mine.document
        )
        return (following.id,)

    def _replaces(self, other: Operation) -> bool:
        """Returns whether an operation ends what this one began, or sets its own deadline for all these jobs. For an
        apply that is known only if the cluster has one group."""
        if other.kind in ENDS:
            return True
        names = [group.name for group in self._cluster.groups]
        scale = ApplyParams.from_json(other.params).scale
        meant = (names if len(names) == 1 else ()) if scale is None else scale
        return _has_deadline(other) and self._waited_for <= set(meant)

    async def _turn(self, word: str) -> None:
        await self._state.store.clusters.save(self._operation.cluster, state=word)
        self._state.live.notify_row_changed(self._operation.cluster)


async def was_replaced(state: AppState, operation: Operation) -> bool:
    """Returns whether an operation that replaces a continued one was carried out."""
    others = [
        await state.store.operations.get(operation_id)
        for operation_id in ApplyParams.from_json(operation.params).instead or ()
    ]
    return any(other.state == "done" for other in others)


def _has_deadline(operation: Operation) -> bool:
    return ApplyParams.from_json(operation.params).deadline_s is not None
