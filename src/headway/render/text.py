"""What all rendered files share: the mark at their head, and the guard that keeps a value inside its line."""

from __future__ import annotations

from headway.errors import Fault, InvalidSpec
from headway.render.conf import Line

MARK = "Written by Headway from the cluster file; changes made here are lost."


def one_line(text: str, what: str) -> str:
    """`text` itself. Raises InvalidSpec where it could end a line, the last guard against a value adding one."""
    if not text.isprintable():
        raise InvalidSpec([Fault(what, f"{text!r} holds a line end or control character")])
    return text


def word(text: str, what: str) -> str:
    """`text` itself. Raises InvalidSpec unless it is one plain word: no blank, quote, `#`, `:`, backslash and the like."""
    if not text or not text.isprintable() or any(c.isspace() or c in "#\"'\\:;$`%" for c in text):
        raise InvalidSpec([Fault(what, f"{text!r} is not a single plain word")])
    return text


def path(text: str, what: str) -> str:
    """An absolute path of plain words; raises InvalidSpec otherwise."""
    if not word(text, what).startswith("/") or ".." in text.split("/"):
        raise InvalidSpec([Fault(what, f"{text!r} is not a plain absolute path")])
    return text.rstrip("/") or "/"


def script(*lines: str) -> str:
    """Lines of a file that has `#` comments, under Headway's mark."""
    return "\n".join((f"# {MARK}", *lines)) + "\n"


def pair(key: str, value: str, why: str = "") -> list[Line]:
    """One setting and, above it, what it is for."""
    line = Line(((key, value),))
    return [Line(comment=why), line] if why else [line]
