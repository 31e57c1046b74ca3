"""Runs one command on the login node for a connected client: output is streamed, input is forwarded, and the
command ends when the client disconnects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Protocol

from headway.domain.machines.machine import Machine
from headway.jobs.remote.user_helper import REFUSED_CODE, helper_argv, helper_error

_MARK = b"\0refused\0"  # precedes a message of node/user_helper itself


class InteractiveConnections(Protocol):
    """The part of Connections that this needs."""

    def converse(
        self, machine: Machine, argv: Sequence[str], feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Yields ("out" | "err", bytes) of a command, and last ("code", digits). `feed` is its standard input. Raises
        Unreachable."""
        ...


async def run_interactive(
    links: InteractiveConnections, head: Machine, user: str, argv: Sequence[str], feed: AsyncIterator[bytes]
) -> AsyncIterator[tuple[str, bytes]]:
    """Yields ("out" | "err", bytes), and at the end ("code", digits), of a command run as root or through a login
    shell of `user`. Raises the error of `helper_error` when the helper refuses."""
    words = helper_argv({"do": "run", "user": user, "argv": list(argv)})
    refused = b""
    async with aclosing(links.converse(head, words, feed)) as pieces:  # type: ignore[type-var]
        async for kind, data in pieces:
            if kind == "err" and data.startswith(_MARK):
                refused = data.removeprefix(_MARK)
            elif refused and kind == "code" and int(data) == REFUSED_CODE:
                raise helper_error(refused.decode(errors="replace"))
            else:
                yield kind, data
