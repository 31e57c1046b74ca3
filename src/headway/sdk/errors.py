"""Converts the server's ErrorOut to the exception that the server raised."""

from __future__ import annotations

from headway.errors import CommandFailed, Fault, HeadwayError, InvalidSpec
from headway.schemas.base import ErrorOut


def error_from_answer(out: ErrorOut) -> HeadwayError:
    """Returns the HeadwayError of the answer's `kind`; a plain HeadwayError for an unknown kind (of a newer server)."""
    if out.kind == InvalidSpec.kind and out.faults:
        return _with_server_message(InvalidSpec([Fault(f.path, f.message, f.hint, f.level) for f in out.faults]), out)
    if out.kind == CommandFailed.kind:
        return _with_server_message(CommandFailed((), None, "", hint=out.hint), out)
    for cls in HeadwayError.__subclasses__():
        if cls.kind == out.kind and cls is not InvalidSpec:
            return cls(out.message, hint=out.hint)
    return HeadwayError(out.message, hint=out.hint)


def _with_server_message(error: HeadwayError, out: ErrorOut) -> HeadwayError:
    """Sets the server's message, which already names the file, or command, machine and stderr."""
    error.message, error.args = out.message, (out.message,)
    return error
