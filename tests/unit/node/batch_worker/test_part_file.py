"""What of a part is whole is used; what a killed worker left half written is not."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from batch_worker.part_file import PartFile, checked_line, whole_lines

LINES = [(b"+", b'{"n":1}'), (b"-", b'{"error":"x"}'), (b"+", b""), (b"+", b'"long text"')]
DATA = b"".join(checked_line(*line) for line in LINES)


@given(st.integers(0, len(DATA)))
def test_cut_part_has_its_whole_lines(length: int) -> None:
    found = whole_lines(DATA[:length])
    assert found == LINES[: DATA[:length].count(b"\n")]


@given(st.integers(0, len(DATA) - 1), st.integers(0, 255))
def test_damaged_part_has_the_lines_before_the_damage(place: int, value: int) -> None:
    data = bytearray(DATA)
    data[place] = value
    found = whole_lines(bytes(data))
    assert found == LINES[: len(found)]
    assert len(found) >= DATA[:place].count(b"\n")


def test_part_continues_with_the_lines_of_earlier_ones(tmp_path: Path) -> None:
    part = PartFile(str(tmp_path / "5.2"), LINES[:2])
    part.add(LINES[2:])
    part.close()
    assert whole_lines((tmp_path / "5.2").read_bytes()) == LINES
