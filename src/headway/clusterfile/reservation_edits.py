"""Adds reservations to a cluster file and removes them. No I/O."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from headway.errors import HeadwayError

_SECTION = re.compile(r"^reservations:[ \t]*(#.*)?\n(?:[ \t]*(?:#.*)?\n)*(?P<indent> +)[^\s#]", re.MULTILINE)

_EMPTY = re.compile(r"^reservations:[ \t]*(?:\{[ \t]*\}|~|null)?(?P<comment>[ \t]*|[ \t]+#.*)$\n?", re.MULTILINE)


def with_reservation(spec: Mapping[str, Any], name: str, part: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the file's mapping with this reservation, or without it if `part` is None."""
    made = copy.deepcopy(dict(spec))
    listed = {key: value for key, value in (made.get("reservations") or {}).items() if key != name}
    if part is not None:
        listed[name] = dict(part)
    made["reservations"] = listed
    if not listed:
        del made["reservations"]
    return made


def edit_reservation(text: str, name: str, part: Mapping[str, Any] | None) -> str:
    """Returns the file's text with this reservation, or without it if `part` is None, and all else as the owner wrote it.
    Returns the text unchanged if the result would not parse to exactly that change."""
    from headway.validation.yaml_parser import parse_yaml

    made = _without(text, name)
    if part is not None:
        made = _with(made, name, part)
    try:
        parsed, old = parse_yaml(made), parse_yaml(text)
    except HeadwayError:
        return text
    return made if parsed == with_reservation(old, name, part) else text


def _with(text: str, name: str, part: Mapping[str, Any]) -> str:
    from headway.validation.yaml_parser import dump_yaml

    section = _SECTION.search(text)
    indent = section["indent"] if section else "  "
    lines = "".join(f"{indent}{line}\n" for line in dump_yaml({name: dict(part)}).splitlines())
    if section is None and (empty := _EMPTY.search(text)):
        return f"{text[: empty.start()]}reservations:{empty['comment']}\n{lines}{text[empty.end() :]}"
    if section is None:
        return f"{text.rstrip()}\nreservations:\n{lines}"
    begin = section.start("indent")
    return text[:begin] + lines + text[begin:]


def _without(text: str, name: str) -> str:
    """Returns the text without the entry of that name, and without the section if that was its only one."""
    section = _SECTION.search(text)
    if section is None:
        return text
    indent, word = re.escape(section["indent"]), re.escape(name)
    entry = rf"^{indent}(?:{word}|'{word}'|\"{word}\"):.*\n(?:(?:[ \t]*\n)*{indent}[ \t]+\S.*\n?)*"
    begin = section.start("indent")
    made = text[:begin] + re.sub(entry, "", text[begin:], count=1, flags=re.MULTILINE)
    if _SECTION.search(made):
        return made
    return re.sub(r"^reservations:.*\n(?:(?:[ \t]*\n)*[ \t]+#.*\n?)*", "", made, count=1, flags=re.MULTILINE)
