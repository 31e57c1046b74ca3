"""Models of browser sessions."""

from __future__ import annotations

from typing import Literal

from headway.schemas.base import ResponseModel


class SessionOut(ResponseModel):
    """A browser session."""

    id: str
    person: str
    created_at: float
    expires_at: float  # earlier than that only by signing out; later with each use, at most seven days in all
    last_used_at: float
    how: Literal["link", "token", "provider"]  # it was opened
    address: str
    browser: str  # its User-Agent
    current: bool  # the one that this request belongs to
