"""Exceptions as ErrorOut: the description of a failed request or operation for users."""

from __future__ import annotations

import errno

from headway.errors import HeadwayError, InvalidSpec
from headway.schemas.base import ErrorOut, FaultOut

DISK_FULL_HINT = "free space there (headway server status names it), then try again; nothing is lost"


def error_out(error: BaseException) -> ErrorOut:
    """Returns the error's kind, message and hint. The message of an unexpected exception is only in the log."""
    if isinstance(error, InvalidSpec):
        faults = [FaultOut.model_validate(fault) for fault in error.faults]
        return ErrorOut(kind=error.kind, message=error.message, hint=error.hint, faults=faults)
    if isinstance(error, HeadwayError):
        return ErrorOut(kind=error.kind, message=error.message, hint=error.hint)
    if _is_disk_full(error):
        message = "the disk of the server's state folder is full"
        return ErrorOut(kind="unreachable", message=message, hint=DISK_FULL_HINT)
    name = type(error).__name__
    return ErrorOut(kind="bug", message=f"internal error of Headway ({name})", hint="headway server logs")


def _is_disk_full(error: BaseException) -> bool:
    """Returns whether the system or SQLite reports a full disk or quota."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    cause = str(getattr(error, "orig", ""))
    return "database or disk is full" in cause or "disk I/O error" in cause
