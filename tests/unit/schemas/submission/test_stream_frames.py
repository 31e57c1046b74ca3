"""Frames of a command's output are decoded correctly for any HTTP chunking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.schemas.submission.stream_frames import KINDS, frame, frames


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.binary(max_size=50))), st.lists(st.integers(1, 20)))
def test_frames_survive_any_chunking(said: list[tuple[str, bytes]], cuts: list[int]) -> None:
    text = b"".join(frame(*one) for one in said)
    pieces = []
    for cut in cuts:
        pieces.append(text[:cut])
        text = text[cut:]
    assert list(frames([*pieces, text])) == said


def test_refuses_data_that_is_not_a_frame() -> None:
    with pytest.raises(ValueError, match="not a frame"):
        list(frames([b"<html>"]))
    assert list(frames([frame("out", b"whole")[:-1]])) == []
