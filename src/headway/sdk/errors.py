"""The server's ErrorOut -> the same exception the server raised."""

from __future__ import annotations

from headway.errors import CommandFailed, Fault, HeadwayError, InvalidSpec
from headway.wire.base import ErrorOut


def to_error(out: ErrorOut) -> HeadwayError:
    """The HeadwayError whose `kind` the answer names; an unknown kind (a newer server) gives a plain HeadwayError."""
    if out.kind == InvalidSpec.kind and out.faults:
        return InvalidSpec([Fault(f.path, f.message, f.hint, f.level) for f in out.faults])
    if out.kind == CommandFailed.kind:
        return _command_failed(out)
    for cls in HeadwayError.__subclasses__():
        if cls.kind == out.kind and cls is not InvalidSpec:
            return cls(out.message, hint=out.hint)
    return HeadwayError(out.message, hint=out.hint)


def _command_failed(out: ErrorOut) -> CommandFailed:
    error = CommandFailed((), None, "", hint=out.hint)
    error.message = out.message  # the server already put argv, place and stderr in its message
    error.args = (out.message,)
    return error
