"""Shared by all rendered files: the marker at their head, and the checks that keep a value inside its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass

from headway.errors import Fault, InvalidSpec
from headway.render.slurm import codec
from headway.render.slurm.codec import Line

MARK = "Written by Headway from the cluster file; changes made here are lost."


def check_plain_strings(value: object, what: str = "") -> None:
    """Raises InvalidSpec for any string inside `value`, however deep, that could end a line. Rendering starts with this,
    so that no value can add a line to any file, whichever file it goes to."""
    if isinstance(value, str):
        one_line(value, what)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_plain_strings(key, what)
            check_plain_strings(item, f"{what}.{key}" if what else str(key))
    elif isinstance(value, tuple):
        for item in value:
            check_plain_strings(item, what)
    elif is_dataclass(value):
        for field in fields(value):
            check_plain_strings(getattr(value, field.name), f"{what}.{field.name}" if what else field.name)


def slurm_text(lines: Iterable[Line], what: str) -> str:
    """Lines of a Slurm file. Raises InvalidSpec for a value that Slurm's syntax can't hold."""
    try:
        return codec.format_lines(lines)
    except ValueError as error:
        raise InvalidSpec([Fault(what, str(error), "use plain values")]) from error


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
