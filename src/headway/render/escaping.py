"""Used by all rendered files: the mark in their first line, and checks that a value stays inside its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass

from headway.errors import Fault, InvalidSpec
from headway.render.slurm import conf_syntax
from headway.render.slurm.conf_syntax import ConfLine

MARK = "Written by Headway from the cluster file; changes made here are lost."


def check_plain_strings(value: object, what: str = "") -> None:
    """Raises InvalidSpec for any string inside `value`, at any depth, that could end a line. Rendering begins with this
    check, so that no value can add a line to any file."""
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


def slurm_text(lines: Iterable[ConfLine], what: str) -> str:
    """Returns the text of a Slurm file. Raises InvalidSpec for a value that Slurm's syntax can't express."""
    try:
        return conf_syntax.format_lines(lines)
    except ValueError as error:
        raise InvalidSpec([Fault(what, str(error), "use plain values")]) from error


def one_line(text: str, what: str) -> str:
    """Returns `text`. Raises InvalidSpec if it could end a line; this is the last guard against injected lines."""
    if not text.isprintable():
        raise InvalidSpec([Fault(what, f"{text!r} contains a line end or control character")])
    return text


def require_word(text: str, what: str) -> str:
    """Returns `text`. Raises InvalidSpec unless it is one plain word: no blank, quote, `#`, `:`, backslash or similar."""
    if not text or not text.isprintable() or any(c.isspace() or c in "#\"'\\:;$`%" for c in text):
        raise InvalidSpec([Fault(what, f"{text!r} is not a single plain word")])
    return text


def path(text: str, what: str) -> str:
    """Returns an absolute path of plain words, without a slash at the end. Raises InvalidSpec for any other text."""
    if not require_word(text, what).startswith("/") or ".." in text.split("/"):
        raise InvalidSpec([Fault(what, f"{text!r} is not a plain absolute path")])
    return text.rstrip("/") or "/"


def script(*lines: str) -> str:
    """Returns the text of a file with `#` comments; the first line is Headway's mark."""
    return "\n".join((f"# {MARK}", *lines)) + "\n"


def commented_setting(key: str, value: str, why: str = "") -> list[ConfLine]:
    """Returns one setting, preceded by a comment with its purpose."""
    line = ConfLine(((key, value),))
    return [ConfLine(comment=why), line] if why else [line]
