"""The server's ErrorOut -> the same exception the server raised."""

from __future__ import annotations

from headway.errors import CommandFailed, Fault, HeadwayError, InvalidSpec
from headway.schemas.base import ErrorOut


def error_from_answer(out: ErrorOut) -> HeadwayError:
    """The HeadwayError whose `kind` the answer names; an unknown kind (a newer server) gives a plain HeadwayError."""
    if out.kind == InvalidSpec.kind and out.faults:
        return _as_said(InvalidSpec([Fault(f.path, f.message, f.hint, f.level) for f in out.faults]), out)
    if out.kind == CommandFailed.kind:
        return _as_said(CommandFailed((), None, "", hint=out.hint), out)
    for cls in HeadwayError.__subclasses__():
        if cls.kind == out.kind and cls is not InvalidSpec:
            return cls(out.message, hint=out.hint)
    return HeadwayError(out.message, hint=out.hint)


def _as_said(error: HeadwayError, out: ErrorOut) -> HeadwayError:
    """The server's message names the file, or argv, place and stderr, already."""
    error.message, error.args = out.message, (out.message,)
    return error
