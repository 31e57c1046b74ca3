"""The terminal: its width and colours, and text that is safe and fits on it."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from dataclasses import dataclass

# good: as it should be; busy: in use; warn: needs attention soon; bad: needs attention now; dim: secondary
STYLES = {"good": "32", "busy": "36", "warn": "33", "bad": "1;31", "dim": "2", "bold": "1"}

Span = tuple[str, str]  # text, style ("" = plain)


@dataclass(frozen=True, slots=True)
class Terminal:
    """The output that text is printed on. `width` None: unlimited (a pipe or a file)."""

    colours: bool
    width: int | None
    unicode: bool


def detect_terminal() -> Terminal:
    """Returns the properties of standard output; respects NO_COLOR and TERM=dumb."""
    terminal = sys.stdout.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    width = shutil.get_terminal_size((80, 24)).columns if terminal else None
    return Terminal(terminal and not plain, width, encoding.startswith("utf"))


def paint(text: str, style: str, terminal: Terminal) -> str:
    """Returns the text in a style of STYLES if the terminal has colours."""
    code = STYLES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code and terminal.colours and text else text


def without_control_characters(text: str) -> str:
    """Returns the text with "?" for control characters: a job's name must not send escape codes to the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def display_width(text: str) -> int:
    """Returns the number of terminal cells: 2 for wide characters, 0 for combining ones."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def wrap_text(text: str, terminal: Terminal, *, indent: int = 0) -> list[str]:
    """Returns the text's lines without control characters, wrapped at blanks to the terminal's width less `indent`."""
    lines = [without_control_characters(line.strip()) for line in text.strip().splitlines()] or [""]
    if terminal.width is None:
        return lines
    from textwrap import wrap

    width = max(20, terminal.width - indent)
    return [part for line in lines for part in wrap(line, width, break_on_hyphens=False) or [""]]
