"""Audit lines for requests that were refused or failed."""

from __future__ import annotations

import structlog
from fastapi import Request

from headway.api.auth.dependencies import SAFE_METHODS, app_state
from headway.errors import HeadwayError, NotAllowed
from headway.services.access.role_rights import Principal
from headway.store import DatabaseLocked

log = structlog.get_logger("headway.api")


async def audit_failure(request: Request, error: Exception) -> None:
    """Writes an audit line for every refusal (NotAllowed) and for every write that failed. Error handlers call it, so
    endpoints need not. For errors that are not a HeadwayError the line holds only the type; the message goes to the
    log."""
    who: Principal | None = getattr(request.state, "principal", None)
    was_refused = isinstance(error, NotAllowed)
    if who is None or not (was_refused or request.method not in SAFE_METHODS):
        return
    if isinstance(error, DatabaseLocked):  # the line could not be written either, and trying takes just as long
        log.warning(
            "the audit line of a failed request was not written: the database is locked",
            person=who.person,
            path=request.url.path,
        )
        return
    # Routes that change something have the name of their action in the trail; the others that of their function.
    action = getattr(request.scope.get("route"), "name", "") or request.method
    target = "/".join(str(value) for value in request.path_params.values())
    why = error.message[:200] if isinstance(error, HeadwayError) else f"a bug ({type(error).__name__})"
    detail = {"method": request.method, "path": request.url.path[:200], "why": why}
    result = "refused" if was_refused else "failed"
    try:
        await app_state(request).store.audit.record(
            who.person, action, target, detail, address=who.address, result=result
        )
    except Exception:  # the request is still answered: the database may be what failed
        log.exception("the audit line of a failed request was not written", person=who.person, action=action)
