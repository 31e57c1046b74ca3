"""Models of the audit trail."""

from __future__ import annotations

from typing import Any

from headway.schemas.base import ResponseModel


class AuditOut(ResponseModel):
    """One line of the audit trail. `result` is ok, refused or failed. `hash` covers the line and the hash of the line
    before it."""

    number: int
    at: float
    person: str
    action: str
    target: str
    result: str
    address: str = ""
    detail: dict[str, Any] = {}
    hash: str = ""


class AuditCheckOut(ResponseModel):
    """The result of a check of the audit trail's hashes. `number` and `hash` are of the last line; `broken_at` is the
    first line that does not match, 0 if all do, and `fault` says what is wrong."""

    lines: int
    number: int
    hash: str
    broken_at: int = 0
    fault: str = ""


class AuditPage(ResponseModel):
    """Audit entries, the latest first. `next` is the cursor of the next (older) page, or "" on the last page."""

    lines: list[AuditOut]
    next: str = ""
