"""Queueing operations of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.domain.operation_kinds import OperationParams
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_news
from headway.store import Operation


async def queue_operation(
    state: AppState,
    cluster: str,
    person: str,
    params: OperationParams,
    *,
    document: Mapping[str, Any] | None = None,
    secret: str = "",
    key: str = "",
) -> Operation:
    """Adds an operation to the end of the queue of its cluster and subject, and notifies event streams, pages and the worker.
    `secret`, `key` and the errors are those of the store's `operations.enqueue`."""
    operation = await state.store.operations.enqueue(
        cluster,
        params.kind,
        person,
        document=document,
        params=params.to_json(),
        subject=params.subject,
        secret=secret,
        key=key,
    )
    state.live.publish_events(operation_news(operation, "queued", state.clock()))
    state.plans.pop(cluster, None)
    state.wake.set()
    state.live.notify_row_changed(cluster)
    return operation


async def queued_operations(state: AppState, cluster: str) -> tuple[Operation, ...]:
    """Returns the operations of the whole cluster that wait for their turn, the oldest first. Operations on a subject of
    their own, such as builds of environments, wait for none of these."""
    return await state.store.operations.queued(cluster)
