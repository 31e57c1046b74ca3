"""Sends node/as_person to the head: everything done as a person goes through it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from headway.domain.machine import Machine
from headway.errors import CommandFailed, HeadwayError, NotAllowed, NotFound, Refused
from headway.machines.program import program
from headway.machines.run import Ran
from headway.machines.ssh import Remote

REFUSED = 97  # how the program says that the person or the folder can't be used
PROGRAM = "as_person"
_MOST = 120_000  # bytes of one word of a command that Linux takes (128 KiB)


class Links(Remote, Protocol):
    """The part of Connections that jobs need."""

    def stream(
        self, machine: Machine, argv: Sequence[str], *, timeout_s: float | None = None
    ) -> AsyncIterator[bytes]: ...


def command(ask: dict[str, Any]) -> list[str]:
    """The argv that does `ask` on the head. Raises Refused when it is too long for a command."""
    text = json.dumps(ask)
    if len(text) > _MOST:
        raise Refused(
            f"the arguments have {len(text)} bytes, more than the {_MOST} a command may have",
            hint="put them in a file that it reads",
        )
    return ["python3", "-I", "-S", "-c", program(PROGRAM), text]


async def call(
    links: Links, head: Machine, ask: dict[str, Any], *, timeout_s: float, stdin: bytes | None = None
) -> Ran:
    """What the command itself said and how it ended. Raises what `refusal` makes of a refusal."""
    ran = await links.remote(head, command(ask), timeout_s=timeout_s, input=stdin, check=False)
    if ran.code == REFUSED:
        raise refusal(ran.stderr)
    return ran


def refusal(said: str) -> HeadwayError:
    """The program's sentence as the right kind of error."""
    sentence = said.strip().splitlines()[-1] if said.strip() else "refused"
    if "there is no user" in sentence:
        return NotFound(sentence, hint="add the person to a team in the cluster file, then headway apply")
    if "may not work" in sentence or "as root" in sentence:
        return NotAllowed(sentence)
    return Refused(sentence)


def refused(error: CommandFailed) -> HeadwayError:
    """The same, of a stream that ended so; any other end stays as it is."""
    return refusal(error.stderr) if error.code == REFUSED else error
