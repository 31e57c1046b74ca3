"""The audit trail: who did what, from where, when, and with which result."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Literal

from headway.errors import Refused
from headway.schemas.access.audit import AuditCheckOut, AuditOut, AuditPage
from headway.schemas.csv_cells import csv_line, safe_cell
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.store import AuditAsk, AuditRow


async def write_audit_line(state: AppState, who: Principal, action: str, target: str, **detail: Any) -> None:
    """Writes the audit entry of a change that was made. `detail` must not contain secrets."""
    await state.store.audit.record(who.person, action, target, detail, address=who.address)


MAX_LINE_NUMBER = 2**31 - 1  # the largest integer that the column holds
EXPORT_BATCH = 500  # lines of an export that are in memory at once
COLUMNS = tuple(AuditOut.model_fields)
AuditResult = Literal["", "ok", "refused", "failed"]
ExportFormat = Literal["jsonl", "csv"]


async def load_audit_page(state: AppState, filters: AuditAsk, *, limit: int, cursor: str = "") -> AuditPage:
    """Returns one page of audit entries, the latest first. Raises Refused for a cursor that does not belong to the log."""
    rows = await state.store.audit.search(filters, limit=limit + 1, before=_line_number(cursor))
    more = len(rows) > limit
    return AuditPage(
        lines=[AuditOut.model_validate(row) for row in rows[:limit]], next=str(rows[limit - 1].number) if more else ""
    )


async def export_lines(state: AppState, filters: AuditAsk, form: ExportFormat) -> AsyncIterator[str]:
    """Yields all matching entries, the oldest first, as text: one JSON object per line, or CSV with a header."""
    after = 0
    if form == "csv":
        yield csv_line(COLUMNS)
    while rows := await state.store.audit.search(filters, limit=EXPORT_BATCH, after=after):
        after = rows[-1].number
        yield "".join(_export_line(row, form) for row in rows)


async def check_audit_chain(state: AppState, number: int = 0, known_hash: str = "") -> AuditCheckOut:
    """Checks the hashes of all entries. `number` and `known_hash` are of an entry that was exported earlier: entries
    that were replaced together with their hashes, or removed from the end, differ from them."""
    found = AuditCheckOut.model_validate(await state.store.audit.check_chain())
    if found.broken_at or not number:
        return found
    if not (there := await state.store.audit.hash_of(number)):
        fault = f"line {number} was removed: the trail ends at line {found.number}"
    elif there != known_hash:
        fault = f"line {number} has another hash than in the export: it or a line before it was replaced"
    else:
        return found
    return found.model_copy(update={"broken_at": number, "fault": fault})


def _export_line(row: AuditRow, form: ExportFormat) -> str:
    values = AuditOut.model_validate(row).model_dump()
    if form == "jsonl":
        return json.dumps(values, ensure_ascii=False) + "\n"
    values["detail"] = json.dumps(values["detail"], ensure_ascii=False)
    return csv_line(safe_cell(values[name]) for name in COLUMNS)


def _line_number(cursor: str) -> int:
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and 0 < int(cursor) <= MAX_LINE_NUMBER):
        raise Refused("the cursor does not belong to this list", hint="start again without it")
    return int(cursor)
