"""A cluster's activity: operations, incidents, and actions of people on its nodes, as text."""

from __future__ import annotations

from typing import Literal

from headway.domain.operation_kinds import OperationKind
from headway.errors import Refused
from headway.schemas.activity import ActivityOut, ActivityPage
from headway.services.app_state import AppState
from headway.services.cluster.operation_view import failure_for_everyone
from headway.services.cursors import decode_cursor, encode_cursor
from headway.store import ActivityPlace, ActivityRow
from headway.store.clusters.activity import KINDS

MAX_NUMBER = 2**31 - 1  # the largest integer that the database's columns hold
Kind = Literal["", "operation", "incident", "action"]
_ACTIONS = {
    "node.drain": "drained",
    "node.return": "returned to service",
    "node.reboot": "rebooted",
    "node.test": "tested",
}
_NOT_PEOPLE = ("headway", "relay")
_LEVELS: dict[str, Literal["info", "warning", "error"]] = {
    "seen": "warning", "jobs moved": "warning", "out of service": "error", "failed": "error",
}  # fmt: skip


async def get_activity(state: AppState, name: str, *, kind: Kind, limit: int, cursor: str) -> ActivityPage:
    """Returns up to `limit` entries, the latest first. Raises Refused for a cursor of another list."""
    await state.clusters.row(name)
    after = _decode_place(cursor) if cursor else None
    rows = await state.store.activity.recent(name, kind=kind, after=after, limit=limit + 1)
    more = encode_cursor(rows[limit - 1].place) if len(rows) > limit else ""
    return ActivityPage(activity=[_activity_out(row) for row in rows[:limit]], next=more)


def _decode_place(cursor: str) -> ActivityPlace:
    at, kind, number, seq = decode_cursor(cursor, float, str, int, int)
    if not (0 <= at < 1e12 and kind in KINDS and 0 <= number <= MAX_NUMBER and 0 <= seq <= MAX_NUMBER):
        raise Refused("the cursor does not belong to this list", hint="start again without it")
    return at, kind, number, seq


def _activity_out(row: ActivityRow) -> ActivityOut:
    if row.kind == "operation":
        return ActivityOut(
            at=row.at, kind="operation", level=_LEVELS.get(row.state, "info"), text=_operation(row), person=row.person,
            operation=row.name,
        )  # fmt: skip
    if row.kind == "incident":
        by = "" if row.person in _NOT_PEOPLE else row.person
        return ActivityOut(
            at=row.at, kind="incident", level=_LEVELS.get(row.state, "info"), text=_incident(row), node=row.node,
            person=by, incident=int(row.name),
        )  # fmt: skip
    return ActivityOut(at=row.at, kind="action", text=_action(row), person=row.person, node=row.node)


def _operation(row: ActivityRow) -> str:
    kind = OperationKind(row.detail["kind"])
    what = kind.activity
    took = row.detail.get("took_s")
    if row.state == "done":
        return f"{what}: done" + (f" in {took:.0f} s" if took is not None else "")
    if row.state == "failed":
        return f"{what}: failed; {failure_for_everyone(kind, row.detail.get('error'))}".rstrip("; ")
    return f"{what}: {'under way' if row.state == 'running' else 'queued'}"


def _incident(row: ActivityRow) -> str:
    text = str(row.detail.get("text", ""))
    return text if row.state in ("seen", "jobs moved") or row.state in text else f"{row.state}: {text}"


def _action(row: ActivityRow) -> str:
    detail = row.detail
    if row.name == "fault":
        what = " ".join(str(detail[key]) for key in ("kind", "code") if detail.get(key))
        return f"fault {'healed' if detail.get('heal') else 'injected'}: {what}"
    reason = f": {detail['reason']}" if detail.get("reason") else ""
    return f"{_ACTIONS.get(row.name, row.name)}{reason}"
