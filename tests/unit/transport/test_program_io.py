"""Reader returns the same lines and byte counts for any chunking and refuses oversized answers."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import Unanswered
from headway.transport.program_io import StreamSplitter


def reader(*pieces: bytes, most: int = 64) -> StreamSplitter:
    async def come() -> object:
        for piece in pieces:
            yield piece

    return StreamSplitter(partial(anext, come(), b""), most=most)


@given(st.lists(st.integers(1, 9), max_size=20))
async def test_reads_lines_and_byte_counts_from_any_chunks(cuts: list[int]) -> None:
    text, pieces = b"ready\nfour\nbytes!\n\nhalf", []
    for cut in cuts:
        pieces.append(text[:cut])
        text = text[cut:]
    answers = reader(*(piece for piece in [*pieces, text] if piece))
    assert (await answers.line(), await answers.exactly(4), await answers.line()) == (b"ready", b"four", b"")
    assert (await answers.exactly(0), await answers.line(), await answers.line()) == (b"", b"bytes!", b"")
    assert await answers.line() is None  # "half" is no line


async def test_truncated_or_oversized_answer_raises_unanswered() -> None:
    with pytest.raises(Unanswered, match="incomplete"):
        await reader(b"ab").exactly(3)
    with pytest.raises(Unanswered, match="more than the 64"):
        await reader(b"x" * 100).exactly(65)
    with pytest.raises(Unanswered, match="more than the 64"):
        await reader(*[b"x" * 40] * 3).line()
