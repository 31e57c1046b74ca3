"""The audit trail: who did what, from where, when, and how it ended."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from headway.api.auth.dependencies import MAX_PATH_NUMBER, Admin, State
from headway.errors import Refused
from headway.schemas.people import AuditOut, AuditPage
from headway.services.context import AppState
from headway.store import AuditAsk, AuditRow

router = APIRouter(prefix="/audit", tags=["people"])
PIECE = 500  # lines of an export that are in memory at once
_COLUMNS = ("number", "at", "person", "action", "target", "result", "address", "detail")
_MOST = 10**15
_FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
Text = Annotated[str, Query(max_length=200)]
Moment = Annotated[float, Query(ge=0, le=_MOST, description="unix seconds")]
Result = Literal["", "ok", "refused", "failed"]


@router.get("")
async def trail(
    state: State,
    _: Admin,
    person: Text = "",
    action: Annotated[str, Query(max_length=200, description="or its beginning")] = "",
    target: Annotated[str, Query(max_length=200, description="or its beginning, such as a cluster's name")] = "",
    result: Result = "",
    since: Moment = 0.0,
    until: Moment = 0.0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str, Query(max_length=20)] = "",
) -> AuditPage:
    """The latest first."""
    ask = AuditAsk(person, action, target, result, since, until)
    rows = await state.store.audit_trail(ask, limit=limit + 1, before=_before(cursor))
    more = len(rows) > limit
    return AuditPage(lines=[_out(row) for row in rows[:limit]], next=str(rows[limit - 1].number) if more else "")


@router.get("/export", response_class=StreamingResponse)
async def export(
    state: State,
    _: Admin,
    form: Annotated[Literal["jsonl", "csv"], Query(alias="format")] = "jsonl",
    person: Text = "",
    action: Text = "",
    target: Text = "",
    result: Result = "",
    since: Moment = 0.0,
    until: Moment = 0.0,
) -> StreamingResponse:
    """All lines that fit, the oldest first: one JSON object a line, or CSV."""
    ask = AuditAsk(person, action, target, result, since, until)
    media = "text/csv; charset=utf-8" if form == "csv" else "application/jsonl; charset=utf-8"
    headers = {"content-disposition": f'attachment; filename="headway-audit.{form}"'}
    return StreamingResponse(_lines(state, ask, form), media_type=media, headers=headers)


async def _lines(state: AppState, ask: AuditAsk, form: str) -> AsyncIterator[str]:
    after = 0
    if form == "csv":
        yield _csv(_COLUMNS)
    while rows := await state.store.audit_trail(ask, limit=PIECE, after=after):
        after = rows[-1].number
        yield "".join(_line(row, form) for row in rows)


def _line(row: AuditRow, form: str) -> str:
    told = _out(row).model_dump()
    if form == "jsonl":
        return json.dumps(told, ensure_ascii=False) + "\n"
    told["detail"] = json.dumps(told["detail"], ensure_ascii=False)
    return _csv([told[name] for name in _COLUMNS])


def _csv(cells: Any) -> str:
    """A text that a spreadsheet would take for a formula begins with an apostrophe, also in the wide letters of Asia."""
    out = io.StringIO()
    safe = [f"'{cell}" if isinstance(cell, str) and cell[:1] in _FORMULA and cell else cell for cell in cells]
    csv.writer(out).writerow(safe)
    return out.getvalue()


def _before(cursor: str) -> int:
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and 0 < int(cursor) <= MAX_PATH_NUMBER):
        raise Refused("the cursor does not belong to this list", hint="start again without it")
    return int(cursor)


def _out(row: AuditRow) -> AuditOut:
    return AuditOut(
        number=row.number,
        at=row.at,
        person=row.person,
        action=row.action,
        target=row.target,
        result=row.result,
        address=row.address,
        detail=dict(row.detail),
    )
