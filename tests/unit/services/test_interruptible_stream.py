from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headway.services.interruptible_stream import Interrupted, next_piece, pieces_until


class Source:
    """Yields two pieces, then waits if `endless`."""

    def __init__(self, *, endless: bool = False) -> None:
        self.endless, self.closed = endless, False

    async def pieces(self) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
            if self.endless:
                await asyncio.Event().wait()
        finally:
            self.closed = True


async def never() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("begun", [False, True])
async def test_stream_without_an_end_yields_all_pieces(begun: bool) -> None:
    source = Source()
    pieces = source.pieces()
    first = next_piece(pieces) if begun else None
    assert [piece async for piece in pieces_until(pieces, never, first=first)] == [1, 2]
    assert source.closed


async def test_end_interrupts_a_waiting_stream_and_closes_it() -> None:
    source, end, found = Source(endless=True), asyncio.Event(), list[int]()

    async def why() -> str:
        await end.wait()
        return "over"

    async def read() -> None:
        async for piece in pieces_until(source.pieces(), never, why):
            found.append(piece)
            if piece == 2:
                end.set()

    with pytest.raises(Interrupted) as raised:
        await read()
    assert (found, raised.value.result, source.closed) == ([1, 2], "over", True)


async def test_error_of_the_pieces_is_raised() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        assert [piece async for piece in pieces_until(broken(), never)] == [1]
