"""Sends node/user_helper to the head. All actions as a user on the head use it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed, HeadwayError, NotAllowed, NotFound, Refused
from headway.transport.process import CommandResult
from headway.transport.program_io import MAX_OUTPUT
from headway.transport.remote_program import program_source

REFUSED_CODE = 97  # exit code of the program when the user or the folder can't be used
PROGRAM = "user_helper"
_MOST = 120_000  # bytes of one argument of a command; Linux permits 128 KiB


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
    ) -> CommandResult:
        """Runs argv on a machine and returns its result; at most `max_output` bytes of output are kept. Raises
        CommandFailed if `check` and the exit code is not 0, Unreachable if the connection broke."""
        ...

    def stream(self, machine: Machine, argv: Sequence[str], *, timeout_s: float | None = None) -> AsyncIterator[bytes]:
        """Yields a command's standard output as it arrives. Raises CommandFailed if the command failed, Unreachable if
        the connection broke."""
        ...


def helper_argv(request: dict[str, Any]) -> list[str]:
    """Returns the argv that does `request` on the head, for requests that read or write over a long time. All users of
    the head can read the arguments of a process."""
    return [*stdin_helper_argv(), json.dumps(request)]


def stdin_helper_argv() -> list[str]:
    """Returns the argv of a program that reads one request from standard input."""
    return ["python3", "-I", "-S", "-c", program_source(PROGRAM)]


def encode_request(request: dict[str, Any], data: bytes = b"") -> bytes:
    """Returns `request`, which may contain secrets, and its data as bytes, for a new process and for a helper alike.
    Raises Refused for arguments that are too long for a command."""
    if (size := len(json.dumps(request))) > _MOST:
        raise Refused(
            f"the arguments have {size} bytes, more than the {_MOST} a command may have",
            hint="put the arguments into a file that the command reads",
        )
    return json.dumps({"ask": request, "size": len(data)}).encode() + b"\n" + data


async def call_helper(
    links: HelperConnections, head: Machine, request: dict[str, Any], *, timeout_s: float, data: bytes = b""
) -> CommandResult:
    """Returns the output and exit code of the command. Raises the error of `helper_error` when the helper refuses."""
    ran = await links.remote(
        head, stdin_helper_argv(), timeout_s=timeout_s, input=encode_request(request, data), check=False
    )
    if ran.code == REFUSED_CODE:
        raise helper_error(ran.stderr)
    return ran


def helper_error(output: str) -> HeadwayError:
    """Returns the error for a refusal of the program, from its message."""
    sentence = output.strip().splitlines()[-1] if output.strip() else "refused"
    if "there is no user" in sentence:
        return NotFound(sentence, hint="add the person to a team in the cluster file, then headway apply")
    if "has no access" in sentence or "as root" in sentence:
        return NotAllowed(sentence)
    return Refused(sentence)


def stream_error(error: CommandFailed) -> HeadwayError:
    """Returns the error of a stream as `helper_error` does when the helper refused; otherwise the same error."""
    return helper_error(error.stderr) if error.code == REFUSED_CODE else error
