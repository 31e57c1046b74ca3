"""Values of secrets are masked in logs wherever the log is cut."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.jobs.logs.follow import LogPiece, log_piece
from headway.jobs.logs.masking import LogMask, mask_stream, overlap
from headway.schemas.jobs import LogFoundOut, LogLineOut, LogPartOut
from tests.support.property_examples import examples

KEY = "hf_abcabcabcabX"  # begins and continues with the same letters
LOG = f"begin {KEY}{KEY} then hf_abc and {KEY}\nhf_abcabc".encode()
MASKED = LOG.replace(KEY.encode(), b"*" * len(KEY))


async def stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def masked(mask: LogMask, *pieces: bytes, start: int = 0) -> list[bytes]:
    return [piece async for piece in mask_stream(stream(*pieces), mask, start)]


@given(st.text("ab", min_size=8, max_size=40), st.text("ab", max_size=80))
@settings(max_examples=examples(300), deadline=None)
def test_end_of_data_where_a_value_may_begin_is_found(value: str, data: str) -> None:
    shown = max((size for size in range(min(len(data), len(value) - 1) + 1) if data.endswith(value[:size])), default=0)
    assert overlap(data.encode(), value.encode()) == shown


@pytest.mark.parametrize("size", [1, 2, 3, 7, 15, 16, 100])
async def test_values_are_masked_however_the_stream_is_cut(size: int) -> None:
    pieces = [log_piece(LOG[at : at + size], at) for at in range(0, len(LOG), size)]
    shown = await masked(LogMask([KEY]), *pieces)
    assert b"".join(shown) == MASKED
    at = 0
    for piece in shown:
        assert isinstance(piece, LogPiece)
        assert piece.offset == at
        at += len(piece)


@pytest.mark.parametrize("start", range(0, len(LOG), 3))
async def test_stream_that_begins_within_a_value_does_not_show_its_end(start: int) -> None:
    mask = LogMask([KEY])
    begin = max(0, start - mask.longest + 1)
    shown = await masked(mask, log_piece(LOG[begin:], begin), start=start)
    assert b"".join(shown) == MASKED[start:]


async def test_truncated_log_begins_again_at_its_own_offset() -> None:
    shown = await masked(LogMask([KEY]), log_piece(b"old hf_abc", 100), b"--- restarted (1) ---\n", log_piece(LOG, 0))
    assert b"".join(shown[-2:]) == MASKED
    assert isinstance(shown[-2], LogPiece)
    assert shown[-2].offset == 0


async def test_unfinished_line_without_a_value_is_shown_at_once() -> None:
    pieces = mask_stream(stream(log_piece(b"epoch 1: ", 0), log_piece(b"done\n", 9)), LogMask([KEY]))
    assert await anext(pieces) == b"epoch 1: "


def test_each_line_of_a_value_is_masked_and_short_lines_are_not() -> None:
    mask = LogMask(["-----BEGIN KEY-----\nabcdefghijkl\n}\n"])
    assert mask.mask(b"[3] abcdefghijkl }\n") == b"[3] ************ }\n"


def test_value_with_signs_of_regular_expressions_is_masked_as_it_is() -> None:
    mask = LogMask(["a.*(b|c)+[d]$^"])
    assert mask.mask(b"a.*(b|c)+[d]$^ axxb d") == b"*" * 14 + b" axxb d"


def test_value_that_contains_another_is_masked_whole() -> None:
    assert LogMask(["longvalue", "longvalue-and-more"]).mask(b"longvalue-and-more") == b"*" * 18


def test_part_of_a_log_shows_no_beginning_or_end_of_a_value() -> None:
    part = LogPartOut(text=f"{KEY[6:]} middle {KEY} {KEY[:9]}", start=10, end=60, size=99)
    assert LogMask([KEY]).mask_part(part).text == f"{'*' * 9} middle {'*' * 15} {'*' * 9}"
    assert LogMask([]).mask_part(part) is part


def test_search_does_not_tell_what_a_value_contains() -> None:
    found = LogFoundOut(
        found=[
            LogLineOut(offset=0, line=1, text=f"key {KEY}"),
            LogLineOut(offset=30, line=2, text=f"ABCA and {KEY}"),
            LogLineOut(offset=60, line=3, text="abca"),
        ]
    )
    shown = LogMask([KEY]).mask_found(found, "abca")
    assert [line.text for line in shown.found] == [f"ABCA and {'*' * 15}", "abca"]
