"""Makes a job's output safe for a terminal.

Escape sequences can set the window's title, write to the clipboard (OSC 52), move the cursor over earlier lines or make
a terminal answer as if its user typed. A job's output may come from other people, so only colours, and what progress
bars need (carriage return, backspace, erase in line), reach the terminal; other control characters are shown as ^X."""

from __future__ import annotations

import codecs
import re

_KEPT = "\t\n\r\b"
_ESC = "\x1b"
# Colours and other attributes of characters, and erase in line
_ALLOWED = re.compile(r"\x1b\[(?:[0-9;:]{0,64}m|[0-2]?K)")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:]{0,64})?\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_RESET = "\x1b[0m"


class TerminalFilter:
    """Filters output that comes in pieces; a sequence or character may be spread over two of them."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, piece: bytes) -> str:
        """Returns the next piece of text for the terminal."""
        text = self._rest + self._decoder.decode(piece)
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        return _filtered(text[: len(text) - len(self._rest)])

    def end(self) -> str:
        """Returns what is left at the end of the output, and switches colours off again."""
        left, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return _filtered(left) + _RESET


def _filtered(text: str) -> str:
    parts, at = [], 0
    for found in _CONTROL.finditer(text):
        if found.start() < at or found[0] in _KEPT:
            continue
        allowed = _ALLOWED.match(text, found.start()) if found[0] == _ESC else None
        parts += [text[at : found.start()], allowed[0] if allowed else _shown(found[0])]
        at = allowed.end() if allowed else found.end()
    return "".join([*parts, text[at:]])


def _shown(control: str) -> str:
    """Returns a control character as `cat -v` shows it."""
    code = ord(control)
    return f"M-^{chr(code - 64)}" if code >= 0x80 else f"^{chr(code ^ 64)}"
