"""The log of requests that the server refused before it did anything: invalid ones, and ones that exceed a limit. What a person
may not do is in the audit trail (`failure_audit`)."""

from __future__ import annotations

import time

import structlog
from starlette.types import Scope

from headway.services.first_in_window import FirstInWindow
from headway.services.login_throttle import address_key

LOGGED = frozenset({400, 408, 413, 422, 429})
WINDOW_S = 300.0

log = structlog.get_logger("headway.api.refused")


class RefusalLog:
    """Logs the first refusal of a status for an address within WINDOW_S, so that a flood of requests is no flood of lines."""

    def __init__(self) -> None:
        self._first = FirstInWindow()

    def note(self, scope: Scope, status: int) -> None:
        """Logs the answer to a request, if it is a refusal and the first."""
        if status not in LOGGED:
            return
        address = (scope.get("client") or ("",))[0]
        if self._first.is_first((status, address_key(address)), time.monotonic(), WINDOW_S):
            log.info(
                "request refused", status=status, method=scope["method"], path=scope["path"][:200], address=address
            )
