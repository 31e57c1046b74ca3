"""Runs one command on the login node for a connected client, also on a terminal: output is streamed, input is forwarded, and
the command ends when the client disconnects."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from headway.domain.machines.machine import Machine
from headway.jobs.remote.user_helper import REFUSED_CODE, helper_argv, helper_error

_MARK = b"\0refused\0"  # precedes a message of node/user_helper itself
_FRAME = struct.Struct("!cH")
_MOST_KEYS = 32_768  # bytes of one frame


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
    request = {"do": "run", "user": user, "argv": list(argv)}
    async with aclosing(_converse(links, head, request, feed)) as pieces:  # type: ignore[type-var]
        async for piece in pieces:
            yield piece


async def run_on_terminal(
    links: InteractiveConnections,
    head: Machine,
    user: str,
    argv: Sequence[str],
    size: tuple[int, int],
    feed: AsyncIterator[bytes],
) -> AsyncIterator[tuple[str, bytes]]:
    """Does the same on a pseudo-terminal of `size` (rows, columns). `feed`: frames of `keys_frame` and `size_frame`. The
    command ends with SIGHUP when `feed` ends."""
    request = {"do": "terminal", "user": user, "argv": list(argv), "rows": size[0], "columns": size[1]}
    async with aclosing(_converse(links, head, request, feed)) as pieces:  # type: ignore[type-var]
        async for piece in pieces:
            yield piece


def keys_frame(keys: bytes) -> bytes:
    """Returns the frames that type `keys` on a terminal, as node/user_helper/terminal.py reads them."""
    parts = (keys[at : at + _MOST_KEYS] for at in range(0, len(keys), _MOST_KEYS))
    return b"".join(_FRAME.pack(b"d", len(part)) + part for part in parts)


def size_frame(rows: int, columns: int) -> bytes:
    """Returns the frame that changes a terminal's size."""
    return _FRAME.pack(b"s", 4) + struct.pack("!HH", rows, columns)


async def _converse(
    links: InteractiveConnections, head: Machine, request: dict[str, Any], feed: AsyncIterator[bytes]
) -> AsyncIterator[tuple[str, bytes]]:
    words = helper_argv(request)
    refused = b""
    async with aclosing(links.converse(head, words, feed)) as pieces:  # type: ignore[type-var]
        async for kind, data in pieces:
            if kind == "err" and data.startswith(_MARK):
                refused = data.removeprefix(_MARK)
            elif refused and kind == "code" and int(data) == REFUSED_CODE:
                raise helper_error(refused.decode(errors="replace"))
            else:
                yield kind, data
