"""The audit trail: who did what, from where, when, and with which result."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from headway.api.auth.dependencies import Admin, State
from headway.schemas.access.audit import AuditCheckOut, AuditPage
from headway.schemas.base import API_PREFIX
from headway.schemas.page_size import DEFAULT_ROWS, MAX_ROWS
from headway.services.access.audit import (
    MAX_LINE_NUMBER,
    AuditResult,
    ExportFormat,
    check_audit_chain,
    export_lines,
    load_audit_page,
)
from headway.store import AuditAsk

router = APIRouter(prefix=f"{API_PREFIX}/audit", tags=["people"])
_MAX_TIME = 10**15
FilterText = Annotated[str, Query(max_length=200)]
UnixTime = Annotated[float, Query(ge=0, le=_MAX_TIME, description="unix seconds")]


_TEXT = {"schema": {"type": "string"}}
EXPORT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The entries", "content": {"application/jsonl": _TEXT, "text/csv": _TEXT}}
}


@router.get("")
async def list_audit(
    state: State,
    _: Admin,
    person: FilterText = "",
    action: Annotated[str, Query(max_length=200, description="an action, or its first letters")] = "",
    target: Annotated[str, Query(max_length=200, description="a target, or its first letters, such as a cluster")] = "",
    result: AuditResult = "",
    since: UnixTime = 0.0,
    until: UnixTime = 0.0,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = DEFAULT_ROWS,
    cursor: Annotated[str, Query(max_length=20)] = "",
) -> AuditPage:
    """Returns the matching audit entries, the latest first."""
    filters = AuditAsk(person, action, target, result, since, until)
    return await load_audit_page(state, filters, limit=limit, cursor=cursor)


@router.get("/export", response_class=StreamingResponse, responses=EXPORT)
async def export_audit(
    state: State,
    _: Admin,
    form: Annotated[ExportFormat, Query(alias="format")] = "jsonl",
    person: FilterText = "",
    action: FilterText = "",
    target: FilterText = "",
    result: AuditResult = "",
    since: UnixTime = 0.0,
    until: UnixTime = 0.0,
) -> StreamingResponse:
    """Returns all matching audit entries, the oldest first, as CSV or with one JSON object per line."""
    filters = AuditAsk(person, action, target, result, since, until)
    media = "text/csv; charset=utf-8" if form == "csv" else "application/jsonl; charset=utf-8"
    headers = {"content-disposition": f'attachment; filename="headway-audit.{form}"'}
    return StreamingResponse(export_lines(state, filters, form), media_type=media, headers=headers)


@router.get("/verify")
async def verify_audit(
    state: State,
    _: Admin,
    number: Annotated[int, Query(ge=0, le=MAX_LINE_NUMBER, description="an entry of an earlier export")] = 0,
    known_hash: Annotated[str, Query(alias="hash", max_length=64, description="the hash of that entry")] = "",
) -> AuditCheckOut:
    """Checks the hash chain of all audit entries. The answer is 200 also for a broken chain: see `broken_at`."""
    return await check_audit_chain(state, number, known_hash)
