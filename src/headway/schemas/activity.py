"""Models of the activity of a cluster: operations, incidents, and actions of people on its nodes."""

from __future__ import annotations

from typing import Literal

from headway.schemas.base import ResponseModel


class ActivityOut(ResponseModel):
    """One event of a cluster. `operation` or `incident` says which one it belongs to, `node` where it happened."""

    at: float
    kind: Literal["operation", "incident", "action"]
    level: Literal["info", "warning", "error"] = "info"
    text: str
    node: str = ""
    person: str = ""  # person who did or started it; "" if it happened automatically
    operation: str = ""
    incident: int | None = None


class ActivityPage(ResponseModel):
    """Events, the latest first. `next` is the cursor of the next (older) page, or "" on the last page."""

    activity: list[ActivityOut]
    next: str = ""
