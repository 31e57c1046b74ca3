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
from headway.schemas.access.scim import SCIM_JSON, SCIM_PREFIX, ScimErrorOut
from headway.schemas.base import API_PREFIX, PROBLEM_JSON, ErrorOut, FaultOut, Problem
from headway.services.error_report import error_out
from headway.services.scim.scim_fault import ScimFault
from headway.store.db.errors import CommitUnknown

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


def scim_response(
    status: int, out: ErrorOut, headers: Mapping[str, str] | None = None, scim_type: str = ""
) -> JSONResponse:
    """Returns the error as SCIM has it (RFC 7644, section 3.12)."""
    text = f"{out.message}; {out.hint}" if out.hint else out.message
    body = ScimErrorOut(status=str(status), scim_type=scim_type or None, detail=text)
    return JSONResponse(body.model_dump(by_alias=True, exclude_none=True), status, headers, media_type=SCIM_JSON)


def _response(
    request: Request, status: int, out: ErrorOut, headers: dict[str, str] | None = None, *, scim_type: str = ""
) -> JSONResponse:
    if request.url.path.startswith(f"{SCIM_PREFIX}/"):
        return scim_response(status, out, headers, scim_type)
    return problem_response(status, out, headers)


def _scim_type(error: HeadwayError) -> str:
    if isinstance(error, ScimFault):
        return error.scim_type
    return "invalidValue" if error.http_status == 400 else ""


def http_error_out(request: Request, error: HTTPException) -> ErrorOut:
    """Returns what an HTTPException says; if a HeadwayError is its cause, that error."""
    if isinstance(error.__cause__, HeadwayError):
        return error_out(error.__cause__)
    kind = "not_found" if error.status_code == 404 else "refused"
    return ErrorOut(kind=kind, message=f"{request.method} {request.url.path}: {error.detail}")


def install_error_handlers(app: FastAPI, headers: Mapping[str, str]) -> None:
    """Installs the handlers. `headers` are the headers of every response, for responses that are sent outside the app's
    middleware."""

    async def on_headway(request: Request, error: Any) -> JSONResponse:
        unanswered = isinstance(error, Unanswered | CommitUnknown)  # it may have been carried out
        request.state.settled = error.settled or unanswered
        await audit_failure(request, error)
        extra = {"www-authenticate": "Bearer"} if error.http_status == 401 else {}
        if error.retry_after_s:
            extra["retry-after"] = str(error.retry_after_s)
        return _response(request, error.http_status, error_out(error), extra, scim_type=_scim_type(error))

    async def on_invalid(request: Request, error: Any) -> JSONResponse:
        faults = [
            FaultOut(path=".".join(str(part) for part in item["loc"]), message=item["msg"]) for item in error.errors()
        ]
        lines = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
        out = ErrorOut(kind="refused", message=f"the request is not valid: {lines}", faults=faults)
        if request.url.path.startswith(f"{SCIM_PREFIX}/"):  # RFC 7644 has no 422
            return scim_response(400, out, scim_type="invalidValue")
        return problem_response(422, out)

    async def on_http(request: Request, error: Any) -> JSONResponse:
        return _response(request, error.status_code, http_error_out(request, error), error.headers)

    async def on_bug(request: Request, error: Any) -> JSONResponse:
        log.error("bug", path=request.url.path, exc_info=error)
        await audit_failure(request, error)
        return _response(request, 500, error_out(error), dict(headers))

    app.add_exception_handler(HeadwayError, on_headway)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_bug)
