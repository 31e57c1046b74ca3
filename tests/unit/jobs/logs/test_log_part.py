"""A part of a log has whole lines and the number of its first one."""

from __future__ import annotations

from headway.jobs.logs.log_part import last_lines


def test_part_knows_the_number_of_its_first_line() -> None:
    part = last_lines(b"one\ntwo\nthree\nfour\n", 0, 19, 2, 0)
    assert (part.text, part.line) == ("three\nfour\n", 3)
    part = last_lines(b"lf of a line\nnext\nlast\n", 900, 925, 5, 40)
    assert (part.text, part.line) == ("next\nlast\n", 42)
    assert last_lines(b"x\n", 10**9, 10**9 + 2, 5).line == 0


def test_progress_bar_is_one_line() -> None:
    bar = b"".join(b"\r%d%%" % number for number in range(1000)) + b"\n"
    part = last_lines(b"start\n" + bar + b"end\n", 0, len(bar) + 10, 2, 0)
    assert (part.text, part.line) == ((bar + b"end\n").decode(), 2)
