"""Sends node/user_helper to the head: everything done as a person goes through it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from headway.domain.machine import Machine
from headway.errors import CommandFailed, HeadwayError, NotAllowed, NotFound, Refused
from headway.transport.process import CommandResult
from headway.transport.remote_program import program_source
from headway.transport.streams import MAX_OUTPUT

REFUSED_CODE = 97  # how the program says that the person or the folder can't be used
PROGRAM = "user_helper"
_MOST = 120_000  # bytes of one word of a command that Linux takes (128 KiB)


class HelperConnections(Protocol):
    """The part of Connections that jobs need."""

    async def remote(
        self,
        machine: Machine,
        argv: Sequence[str],
        *,
        timeout_s: float,
        input: bytes | None = None,  # noqa: A002
        check: bool = True,
        max_output: int = MAX_OUTPUT,
    ) -> CommandResult: ...

    def stream(
        self, machine: Machine, argv: Sequence[str], *, timeout_s: float | None = None
    ) -> AsyncIterator[bytes]: ...


def helper_argv(ask: dict[str, Any]) -> list[str]:
    """The argv that does `ask` on the head, for one that reads or writes as long as it lives. Everybody there can read it."""
    return [*stdin_helper_argv(), json.dumps(ask)]


def stdin_helper_argv() -> list[str]:
    """The argv of a program that is asked one `question` on standard input."""
    return ["python3", "-I", "-S", "-c", program_source(PROGRAM)]


def encode_request(ask: dict[str, Any], data: bytes = b"") -> bytes:
    """`ask`, which may hold secrets, and the data that comes with it, for a fresh program and for a helper alike. Raises
    Refused for arguments that no command can have."""
    if (size := len(json.dumps(ask))) > _MOST:
        raise Refused(
            f"the arguments have {size} bytes, more than the {_MOST} a command may have",
            hint="put them in a file that it reads",
        )
    return json.dumps({"ask": ask, "size": len(data)}).encode() + b"\n" + data


async def call_helper(
    links: HelperConnections, head: Machine, ask: dict[str, Any], *, timeout_s: float, data: bytes = b""
) -> CommandResult:
    """What the command itself said and how it ended. Raises what `refusal` makes of a refusal."""
    ran = await links.remote(
        head, stdin_helper_argv(), timeout_s=timeout_s, input=encode_request(ask, data), check=False
    )
    if ran.code == REFUSED_CODE:
        raise helper_error(ran.stderr)
    return ran


def helper_error(said: str) -> HeadwayError:
    """The program_source's sentence as the right kind of error."""
    sentence = said.strip().splitlines()[-1] if said.strip() else "refused"
    if "there is no user" in sentence:
        return NotFound(sentence, hint="add the person to a team in the cluster file, then headway apply")
    if "may not work" in sentence or "as root" in sentence:
        return NotAllowed(sentence)
    return Refused(sentence)


def stream_error(error: CommandFailed) -> HeadwayError:
    """The same, of a stream that ended so; any other end stays as it is."""
    return helper_error(error.stderr) if error.code == REFUSED_CODE else error
