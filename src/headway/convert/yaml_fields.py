"""The fields of a YAML or JSON file, which remember what was read of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from typing import Any

from headway.convert.job_description import Place
from headway.convert.reading_state import Reading
from headway.domain.access.credential_redaction import is_secret
from headway.errors import Fault, InvalidSpec

_LONGEST_TEXT = 60
NOT_KNOWN = ("headway convert does not carry this field", "")


class Field:
    """A field of a file, or one that is not there. Reading its value marks it as carried."""

    def __init__(self, value: Any, path: str, name: str, reading: Reading, read: set[str]) -> None:
        self.value, self.path, self.name, self.reading, self._read = value, path, name, reading, read

    def __getitem__(self, name: str | int) -> Field:
        """Returns the field of a mapping, or the item of a list; one without value if it is not there."""
        path = _joined(self.path, name)
        found: Any = None
        if isinstance(name, int):
            found = self.value[name] if isinstance(self.value, list) and name < len(self.value) else None
        elif isinstance(self.value, dict):
            found = self.value.get(name)
        elif self.value is not None:
            raise self.fault("is not a mapping of fields", f"expected a field {name} in it")
        return Field(found, path, self.name if isinstance(name, int) else name, self.reading, self._read)

    def __bool__(self) -> bool:
        return self.value is not None

    @property
    def place(self) -> Place:
        """Returns path and value for the list of losses."""
        return Place(self.path, _shown(self.name, self.value))

    def fault(self, message: str, hint: str = "") -> InvalidSpec:
        """Returns an error about this field."""
        return InvalidSpec([Fault(self.path, message, hint)], "the file")

    def items(self) -> Iterator[Field]:
        """Yields the items of a list; of another value that there is, the value itself. Marks nothing."""
        if isinstance(self.value, list):
            yield from (self[number] for number in range(len(self.value)))
        elif self.value is not None:
            yield self

    def members(self) -> Iterator[tuple[str, Field]]:
        """Yields the fields of a mapping by name. Marks nothing. Raises InvalidSpec for another value."""
        if self.value is None:
            return
        if not isinstance(self.value, dict):
            raise self.fault("is not a mapping of fields", "write NAME: VALUE lines below it")
        yield from ((str(name), self[str(name)]) for name in self.value)

    def text(self, default: str = "") -> str:
        """Returns a scalar as text, and marks it. Raises InvalidSpec for a mapping or list."""
        if self.value is None:
            return default
        if isinstance(self.value, dict | list):
            raise self.fault("is not text", "write one value")
        self.mark()
        return _text(self.value)

    def number(self, default: int) -> int:
        """Returns a whole number from 0, and marks it. Raises InvalidSpec for another value."""
        if self.value is None:
            return default
        self.mark()
        text = _text(self.value)
        if isinstance(self.value, dict | list) or not text.isdecimal() or int(text) >= 10**9:
            raise self.fault("is not a whole number", "write a number from 0")
        return int(text)

    def words(self) -> list[str]:
        """Returns a list of texts, and marks it; of one text a list of one."""
        return [item.text() for item in self.items()]

    def mark(self) -> None:
        """Notes that the field and everything in it was carried."""
        self._read.update(_leaves(self.value, self.path))
        self.reading.carry(self.place)

    def lose(self, why: str, remedy: str = "") -> None:
        """Notes that the field is not in the result, if it is there."""
        if self.value is not None:
            self._read.update(_leaves(self.value, self.path))
            self.reading.lose(self.place, why, remedy)

    def same(self, why: str) -> None:
        """Notes that the target does this without being asked, if the field is there."""
        if self.value is not None:
            self._read.update(_leaves(self.value, self.path))
            self.reading.same(self.place, why)

    def change(self, why: str, remedy: str = "") -> None:
        """Notes that the field has another meaning in the result."""
        self._read.update(_leaves(self.value, self.path))
        self.reading.change(self.place, why, remedy)

    def lose_the_rest(self, reasons: Mapping[str, tuple[str, str]], same: Mapping[str, str]) -> None:
        """Notes all fields that nothing was done with as lost. `reasons`: name of a field -> why, and the next step.
        `same`: name of a field -> why nothing needs to be written."""
        for found in self._untouched(reasons.keys() | same.keys()):
            if found.name in same:
                found.same(same[found.name])
            else:
                found.lose(*reasons.get(found.name, NOT_KNOWN))

    def _untouched(self, names: Set[str]) -> Iterator[Field]:
        """Yields the largest parts that nothing was done with: lists, single values, and mappings with one of the names.
        Other mappings are yielded by their fields."""
        leaves = set(_leaves(self.value, self.path))
        if not leaves - self._read:
            return
        is_whole = not leaves & self._read
        if isinstance(self.value, dict) and not (is_whole and self.name in names):
            for _, member in self.members():
                yield from member._untouched(names)
        elif isinstance(self.value, list) and not is_whole:
            for item in self.items():
                yield from item._untouched(names)
        else:
            yield self


def root_field(document: Mapping[str, Any], reading: Reading) -> Field:
    """Returns the whole file as a field."""
    return Field(dict(document), "", "", reading, set())


def _joined(path: str, name: str | int) -> str:
    """Returns the path of a field or item below another: `spec.containers[0]`, `limits["nvidia.com/gpu"]`."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    return f'{path}["{name}"]' if "." in name else f"{path}.{name}".removeprefix(".")


def _leaves(value: Any, path: str) -> Iterator[str]:
    stack: list[tuple[Any, str]] = [(value, path)]
    while stack:
        found, at = stack.pop()
        if isinstance(found, dict) and found:
            stack += [(member, _joined(at, str(name))) for name, member in found.items()]
        elif isinstance(found, list) and found:
            stack += [(member, _joined(at, number)) for number, member in enumerate(found)]
        elif found is not None:
            yield at


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _shown(name: str, value: Any) -> str:
    """Returns the value in short. Values of secrets are not shown."""
    if is_secret(name):
        return "(not shown)"
    text = _text(value) if not isinstance(value, dict | list) else json.dumps(_without_secrets(value), default=str)
    text = " ".join(text[: 4 * _LONGEST_TEXT].split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        is_named = is_secret(str(value.get("name", "")))
        return {
            name: "(not shown)" if is_secret(str(name)) or (is_named and name == "value") else _without_secrets(member)
            for name, member in value.items()
        }
    return [_without_secrets(member) for member in value[:20]] if isinstance(value, list) else value
