"""Finds the line of each field in a cluster file's text, so that an error can point to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from headway.validation.error_paths import Loc, path_text

_LINE = re.compile(r"line (\d+)")
_LAST = re.compile(r"(\.[^.\[\"]+|\.?\"[^\"]*\"|\[\d+\])$")


def field_lines(text: str) -> dict[str, int]:
    """Returns the line of each field, counted from 1: {"teams.vision.users[1]": 12, ...}. The text must have passed
    `parse_yaml`, which limits the depth."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the other one takes ten times as long
    root = yaml.compose(text, Loader=loader)
    found: dict[str, int] = {}
    seen: set[int] = set()
    waits: list[tuple[Loc, yaml.Node | None]] = [((), root)]
    while waits:
        loc, node = waits.pop()
        if node is None or id(node) in seen:  # an alias: its lines are those of the anchor
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                place = (*loc, str(key.value))
                found[path_text(place)] = key.start_mark.line + 1
                waits.append((place, value))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                found[path_text((*loc, index))] = value.start_mark.line + 1
                waits.append(((*loc, index), value))
    return found


def line_of(path: str, lines: Mapping[str, int]) -> int:
    """Returns the line of a fault's path. A missing field gets the line of its parent; 0 if there is no line."""
    match = _LINE.fullmatch(path)
    if match:
        return int(match[1])
    while path:
        if path in lines:
            return lines[path]
        shorter = _LAST.sub("", path)
        path = "" if shorter == path else shorter
    return 0
