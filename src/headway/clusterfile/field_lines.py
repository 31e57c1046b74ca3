"""Finds the line of each field in a cluster file's text, so that an error can point to it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

from headway.validation.error_paths import Loc, path_text

_LINE = re.compile(r"line (\d+)")
_LAST = re.compile(r"(\.[^.\[\"]+|\.?\"[^\"]*\"|\[\d+\])$")


def field_lines(text: str) -> dict[str, int]:
    """{"teams.vision.users[1]": 12, ...}, lines counted from 1. Only for a text that `parse_yaml` takes: it has bounded
    how deep it goes."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found: dict[str, int] = {}
    seen: set[int] = set()
    waits: list[tuple[Loc, yaml.Node | None]] = [((), root)]
    while waits:
        loc, node = waits.pop()
        if node is None or id(node) in seen:  # an alias: it stands where it was first
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
    """The line of a fault's path; of what it would stand in, where it is missing. 0 when it has no place."""
    said = _LINE.fullmatch(path)
    if said:
        return int(said[1])
    while path:
        if path in lines:
            return lines[path]
        shorter = _LAST.sub("", path)
        path = "" if shorter == path else shorter
    return 0
