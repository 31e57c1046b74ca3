"""Streams that end early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
END = object()


class Interrupted(Exception):
    """A stream ended early. `result` is that of the end that came first."""

    def __init__(self, result: Any) -> None:
        super().__init__(result)
        self.result = result


async def pieces_until(
    pieces: AsyncIterator[T], *ends: Callable[[], Awaitable[Any]], first: asyncio.Future[Any] | None = None
) -> AsyncGenerator[T, None]:
    """Yields the pieces, and closes `pieces` after the last one. Raises Interrupted as soon as what one of `ends`
    returns is done. `first`: the next piece, if it has been asked for already (`next_piece`)."""
    waits = [asyncio.ensure_future(end()) for end in ends]
    following = first or next_piece(pieces)
    try:
        while True:
            await asyncio.wait({following, *waits}, return_when=asyncio.FIRST_COMPLETED)
            for end in waits:
                if end.done():
                    raise Interrupted(end.result())
            piece = following.result()
            if piece is END:
                return
            yield piece
            following = next_piece(pieces)
    finally:
        for task in (following, *waits):
            task.cancel()
        await asyncio.gather(following, *waits, return_exceptions=True)
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


def next_piece(pieces: AsyncIterator[Any]) -> asyncio.Future[Any]:
    """Returns a task that waits for the next piece; its result is END after the last one."""
    return asyncio.ensure_future(anext(pieces, END))
