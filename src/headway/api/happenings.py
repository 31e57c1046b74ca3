"""What happened on a cluster: applies, incidents, and what people did to its nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from headway.api.access import Anyone, State
from headway.errors import Refused
from headway.store import HappeningRow
from headway.wire.people import HappeningOut, HappeningPage

router = APIRouter(prefix="/clusters/{name}", tags=["events"])
Kind = Literal["", "operation", "incident", "deed"]
_OPERATIONS = {
    "apply": "apply",
    "scale": "scaling",
    "down": "taking the cluster down",
    "backup": "backup",
    "restore": "coming back from a backup",
    "rotate": "a new key",
    "dataset": "a dataset",
    "roll": "another node image",
    "replace": "another machine",
}
_DEEDS = {
    "node.drain": "drained",
    "node.return": "returned to service",
    "node.reboot": "rebooted",
    "node.test": "tested",
}
_BY_ITSELF = ("headway", "relay")
_LEVELS: dict[str, Literal["info", "warning", "error"]] = {
    "seen": "warning", "jobs moved": "warning", "out of service": "error", "failed": "error",
}  # fmt: skip


@router.get("/happenings")
async def happenings(
    name: str,
    state: State,
    _: Anyone,
    kind: Kind = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str, Query(max_length=60)] = "",
) -> HappeningPage:
    """The latest first. What happens now comes by the events stream."""
    await state.row(name)
    until, skip = _place(cursor)
    rows = await state.store.happenings(name, kind=kind, until=until, skip=skip, limit=limit + 1)
    shown = rows[:limit]
    return HappeningPage(
        happenings=[told(row) for row in shown], next=_after(shown, until, skip) if len(rows) > limit else ""
    )


def _place(cursor: str) -> tuple[float | None, int]:
    """(moment, how many of that moment were shown)."""
    if not cursor:
        return None, 0
    moment, _, shown = cursor.partition("~")
    try:
        until, skip = float(moment), int(shown)
    except ValueError:
        until, skip = -1.0, -1
    if not (0 <= until < 1e12 and 0 < skip < 10_000):
        raise Refused("the cursor is none of this list's", hint="start again without it")
    return until, skip


def _after(shown: tuple[HappeningRow, ...], until: float | None, skip: int) -> str:
    last = shown[-1].at
    same = sum(row.at == last for row in shown)
    return f"{last!r}~{same + (skip if last == until else 0)}"


def told(row: HappeningRow) -> HappeningOut:
    """In words."""
    if row.kind == "operation":
        return HappeningOut(
            at=row.at, kind="operation", level=_LEVELS.get(row.state, "info"), text=_operation(row), person=row.person,
            operation=row.name,
        )  # fmt: skip
    if row.kind == "incident":
        by = "" if row.person in _BY_ITSELF else row.person
        return HappeningOut(
            at=row.at, kind="incident", level=_LEVELS.get(row.state, "info"), text=_incident(row), node=row.node,
            person=by, incident=int(row.name),
        )  # fmt: skip
    return HappeningOut(at=row.at, kind="deed", text=_deed(row), person=row.person, node=row.node)


def _operation(row: HappeningRow) -> str:
    what = _OPERATIONS.get(str(row.detail.get("kind")), str(row.detail.get("kind")))
    took = row.detail.get("took_s")
    if row.state == "done":
        return f"{what}: done" + (f" in {took:.0f} s" if took is not None else "")
    if row.state == "failed":
        why = str(dict(row.detail.get("error") or {}).get("message", "")).partition("\n")[0]
        return f"{what}: failed; {why}".rstrip("; ")
    return f"{what}: {'under way' if row.state == 'running' else 'waits its turn'}"


def _incident(row: HappeningRow) -> str:
    text = str(row.detail.get("text", ""))
    return text if row.state in ("seen", "jobs moved") or row.state in text else f"{row.state}: {text}"


def _deed(row: HappeningRow) -> str:
    detail = row.detail
    if row.name == "fault":
        what = " ".join(str(detail[key]) for key in ("kind", "code") if detail.get(key))
        return f"fault {'healed' if detail.get('heal') else 'made'}: {what}"
    reason = f": {detail['reason']}" if detail.get("reason") else ""
    return f"{_DEEDS.get(row.name, row.name)}{reason}"
