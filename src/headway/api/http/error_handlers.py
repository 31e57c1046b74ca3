"""Exceptions as HTTP responses (RFC 9457 problem documents)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from headway.api.http.failure_audit import audit_failure
from headway.errors import HeadwayError, Unanswered
from headway.schemas.base import API_PREFIX, PROBLEM_JSON, ErrorOut, FaultOut, Problem
from headway.services.error_report import error_out
from headway.store.db.transactions import CommitUnknown

log = structlog.get_logger("headway.api")


def problem_response(status: int, out: ErrorOut, headers: dict[str, str] | None = None) -> JSONResponse:
    """Returns the error as a problem document."""
    problem = Problem(
        type=f"{API_PREFIX}/docs#problem-{out.kind}",
        title=out.kind.replace("_", " ").capitalize(),
        status=status,
        detail=out.message,
        kind=out.kind,
        hint=out.hint,
        faults=out.faults,
    )
    return JSONResponse(problem.model_dump(), status, headers, media_type=PROBLEM_JSON)


def install_error_handlers(app: FastAPI, headers: Mapping[str, str]) -> None:
    """Installs the handlers. `headers` are the headers of every response, for responses that are sent outside the app's
    middleware."""

    async def on_headway(request: Request, error: Any) -> JSONResponse:
        unanswered = isinstance(error, Unanswered | CommitUnknown)  # it may have been carried out
        request.state.settled = error.settled or unanswered
        await audit_failure(request, error)
        scheme = {"www-authenticate": "Bearer"} if error.http_status == 401 else None
        return problem_response(error.http_status, error_out(error), scheme)

    async def on_invalid(_: Request, error: Any) -> JSONResponse:
        faults = [
            FaultOut(path=".".join(str(part) for part in item["loc"]), message=item["msg"]) for item in error.errors()
        ]
        lines = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
        return problem_response(
            422, ErrorOut(kind="refused", message=f"the request is not valid: {lines}", faults=faults)
        )

    async def on_http(request: Request, error: Any) -> JSONResponse:
        kind = "not_found" if error.status_code == 404 else "refused"
        message = f"{request.method} {request.url.path}: {error.detail}"
        return problem_response(error.status_code, ErrorOut(kind=kind, message=message), error.headers)

    async def on_bug(request: Request, error: Any) -> JSONResponse:
        log.error("bug", path=request.url.path, exc_info=error)
        await audit_failure(request, error)
        return problem_response(500, error_out(error), dict(headers))

    app.add_exception_handler(HeadwayError, on_headway)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_bug)
