"""Exceptions -> ErrorOut, for operations that failed, and -> Problem, for HTTP answers."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from headway.api.http.failure_audit import audit_failure
from headway.errors import HeadwayError, InvalidSpec, Unanswered
from headway.schemas.base import API_PREFIX, PROBLEM_JSON, ErrorOut, FaultOut, Problem

ROOM_HINT = "make room there (headway server status names it), then try again; nothing is lost"
log = structlog.get_logger("headway.api")


def error_out(error: BaseException) -> ErrorOut:
    """What a person is told. An error that nobody foresaw keeps its details to the log."""
    if isinstance(error, InvalidSpec):
        faults = [FaultOut(path=f.path, message=f.message, hint=f.hint, level=f.level) for f in error.faults]
        return ErrorOut(kind=error.kind, message=error.message, hint=error.hint, faults=faults)
    if isinstance(error, HeadwayError):
        return ErrorOut(kind=error.kind, message=error.message, hint=error.hint)
    if _disk_full(error):
        return ErrorOut(kind="unreachable", message="the disk of the server's state folder is full", hint=ROOM_HINT)
    name = type(error).__name__
    return ErrorOut(kind="bug", message=f"Headway met an error it did not foresee ({name})", hint="headway server logs")


def first_line(out: ErrorOut) -> str:
    return out.message.splitlines()[0]


def _disk_full(error: BaseException) -> bool:
    """Also as SQLite says it."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    said = str(getattr(error, "orig", ""))
    return "database or disk is full" in said or "disk I/O error" in said


def problem_response(status: int, out: ErrorOut, headers: dict[str, str] | None = None) -> JSONResponse:
    """The error as a problem document."""
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


def install(app: FastAPI, headers: Mapping[str, str]) -> None:
    """The one place where exceptions become HTTP. `headers`: what every answer carries, for those sent from outside the
    app's own layers."""

    async def on_headway(request: Request, error: Any) -> JSONResponse:
        request.state.settled = error.settled or isinstance(error, Unanswered)  # or it may have been done
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
