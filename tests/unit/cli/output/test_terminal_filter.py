"""A job's output cannot command the terminal of the person who reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.output.terminal_filter import TerminalFilter

CLIPBOARD = b"\x1b]52;c;cm0gLXJmIH4=\x07"


def shown(*pieces: bytes) -> str:
    terminal = TerminalFilter()
    return ("".join(map(terminal.feed, pieces)) + terminal.end()).removesuffix("\x1b[0m")


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"plain\ttext\r\n", "plain\ttext\r\n"),
        ("größer ✓\n".encode(), "größer ✓\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b[38;5;208mx\x1b[m\x1b[38:2::1:2:3mx", None),
        (b"50%\r\x1b[K60%\b\n", None),
        (CLIPBOARD, "^[]52;c;cm0gLXJmIH4=^G"),
        (b"\x1b]0;title\x1b\\", "^[]0;title^[\\"),
        (b"\x1b[2J\x1b[H\x1b[3A", "^[[2J^[[H^[[3A"),
        (b"\x1b[6n\x1bP$q\"p\x1b\\\x1bc", '^[[6n^[P$q"p^[\\^[c'),
        (b"\xc2\x9d52;c;x\xc2\x9c \xc2\x9b2J", "M-^]52;c;xM-^\\ M-^[2J"),
        (b"\x9b2J\xff", "\ufffd2J\ufffd"),
        (b"\x1b[" + b"1;" * 40 + b"m", "^[[" + "1;" * 40 + "m"),
        (b"\x00\x08\x7f\x0e", "^@\b^?^N"),
    ],
)  # fmt: skip
def test_only_colours_and_progress_bars_reach_the_terminal(sent: bytes, text: str | None) -> None:
    expected = sent.decode() if text is None else text
    assert shown(sent) == expected
    assert shown(*(bytes([byte]) for byte in sent)) == expected, "pieces may end anywhere"


@given(st.lists(st.binary(max_size=8) | st.sampled_from([b"\x1b", b"\x1b[", b"\x1b]", b"1m", CLIPBOARD])))
def test_no_other_escape_sequence_passes(pieces: list[bytes]) -> None:
    text = shown(*pieces)
    assert text == shown(b"".join(pieces))
    for rest in text.split("\x1b")[1:]:
        assert rest[0] == "["
        assert rest.lstrip("[0123456789;:")[0] in "mK"
