"""Converts an operation and the event of its change of state to the schemas of the API. Pure."""

from __future__ import annotations

from headway.schemas.base import ErrorOut
from headway.schemas.event_stream import ClusterEventOut
from headway.schemas.operations import OperationOut
from headway.store import Operation


def operation_news(operation: Operation, state: str, at: float, text: str = "") -> ClusterEventOut:
    """Returns the event for an operation that has entered `state`."""
    return ClusterEventOut(
        at=at, cluster=operation.cluster, kind="operation", name=operation.id, state=state,
        before={"queued": "", "running": "queued"}.get(state, "running"), text=text or operation.kind,
        user=operation.person,
    )  # fmt: skip


def operation_out(operation: Operation) -> OperationOut:
    """Returns an operation without its document and parameters; of a document from Git, with its commit."""
    return OperationOut.model_validate(
        {
            "id": operation.id,
            "cluster": operation.cluster,
            "kind": operation.kind,
            "state": operation.state,
            "person": operation.person,
            "created_at": operation.created_at,
            "started_at": operation.started_at,
            "finished_at": operation.finished_at,
            "error": ErrorOut.model_validate(operation.error) if operation.error else None,
            "kept": list(operation.kept),
            "commit": (operation.document.get("origin") or {}).get("commit", ""),
        }
    )
