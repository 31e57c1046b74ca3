"""Parses YAML text to plain mappings, lists and scalars only, and writes it (`dump_yaml`).

It works on the parser's events, so it does not recurse and never creates objects. Tags, cycles, repeated keys and
aliases that expand without bound are refused with their line number. Scalars follow YAML 1.2: `02:00:00` and `no` are
text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from headway.errors import CLUSTER_FILE, Fault, InvalidSpec
from headway.validation import syntax_rules

LARGEST_BYTES = 4 * 1024 * 1024
MOST_VALUES = 300_000  # with aliases expanded
DEEPEST = 24

_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?([0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18}(\.[0-9]{0,18})?[eE][-+]?[0-9]{1,2})")
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = ("", "~", "null", "Null", "NULL")


def parse_yaml(text: str, what: str = CLUSTER_FILE, *, may_be_empty: bool = False) -> dict[str, Any]:
    """Returns the mapping of a file with one YAML document. All keys are text. Raises InvalidSpec, whose message calls
    the file `what`."""
    try:
        value = _value(text)
    except InvalidSpec as error:
        raise InvalidSpec(error.faults, what) from None
    if value is None and may_be_empty:
        return {}
    if not isinstance(value, dict):
        fault = Fault("line 1", "a cluster file is a mapping of fields", "create one with headway init")
        raise InvalidSpec([fault if what == CLUSTER_FILE else Fault("line 1", "is not a mapping of fields")], what)
    return value


def _value(text: str) -> Any:
    if len(text) > LARGEST_BYTES:
        raise _invalid(f"the file is larger than {LARGEST_BYTES // 1024 // 1024} MiB")
    try:
        return _Builder().build(text)
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        problem = syntax_rules.printable(error.problem or error.context or "cannot be read", 120)
        raise _invalid(f"not YAML: {problem}", mark, "check the indentation and quotes there") from None
    except (yaml.YAMLError, UnicodeError):
        raise _invalid("not YAML: the text has characters that YAML does not allow") from None


@dataclass
class _Open:
    """A mapping or list that is being read. `key` is the key whose value comes next."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    size: int = 1
    key: str | None = None
    lines: dict[str, int] = field(default_factory=dict)


class _Builder:
    def __init__(self) -> None:
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.result: Any = None
        self.documents = 0
        self.count = 0

    def build(self, text: str) -> Any:
        """Returns the value of the only document in the text."""
        for event in _events(text):
            if isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    raise _invalid(
                        "the file has a second YAML document", event.start_mark, "keep one document in the file"
                    )
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.MappingStartEvent):
                self._open(event, {})
            elif isinstance(event, yaml.SequenceStartEvent):
                self._open(event, [])
            elif isinstance(event, yaml.CollectionEndEvent):
                done = self.stack.pop()
                if done.anchor:
                    self.anchors[done.anchor] = (done.value, done.size)
                self._put(done.value, done.size, event)
        return self.result

    def _open(self, event: yaml.CollectionStartEvent, value: dict[str, Any] | list[Any]) -> None:
        _no_tag(event)
        if self._expects_key():
            raise _invalid("a field's name must be plain text", event.start_mark)
        if len(self.stack) >= DEEPEST:
            raise _invalid(f"nested more than {DEEPEST} levels deep", event.start_mark)
        self.anchors.pop(event.anchor or "", None)
        self.stack.append(_Open(value, event.anchor))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        _no_tag(event)
        value = event.value if event.style else _plain(event.value)
        if event.anchor:
            self.anchors[event.anchor] = (value, 1)
        if self._expects_key():
            self._key(event)
        else:
            self._put(value, 1, event)

    def _key(self, event: Any) -> None:
        mapping, key = self.stack[-1], str(event.value)
        line = event.start_mark.line + 1
        if key == "<<" and not event.style:
            raise _invalid("merge keys (<<) are not allowed", event.start_mark, "write the fields out")
        if key in mapping.lines:
            raise _invalid(
                f"{syntax_rules.printable(key)} is given twice, first on line {mapping.lines[key]}",
                event.start_mark,
                "remove one",
            )
        mapping.lines[key] = line
        mapping.key = key

    def _alias(self, event: yaml.AliasEvent) -> None:
        if self._expects_key():
            raise _invalid("a field's name must be plain text", event.start_mark)
        if event.anchor not in self.anchors:
            raise _invalid(
                f"*{syntax_rules.printable(event.anchor)} is an alias without an anchor above it", event.start_mark
            )
        value, size = self.anchors[event.anchor]
        self._put(value, size, event)

    def _put(self, value: Any, size: int, event: yaml.Event) -> None:
        self.count += size if isinstance(event, yaml.AliasEvent) else 1
        if self.count > MOST_VALUES:
            raise _invalid(f"holds more than {MOST_VALUES} values with its aliases expanded", event.start_mark)
        if not self.stack:
            self.result = value
            return
        parent = self.stack[-1]
        parent.size += size
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is not None:
            parent.value[parent.key] = value
            parent.key = None

    def _expects_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None


def _events(text: str) -> Iterator[Any]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return iter(yaml.parse(text, Loader=loader))


def _no_tag(event: Any) -> None:
    if event.tag is not None:
        raise _invalid(f"the tag {syntax_rules.printable(event.tag)} is not allowed", event.start_mark, "remove it")


def _plain(text: str) -> Any:
    if text in _NULLS:
        return None
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _invalid(message: str, mark: Any = None, hint: str = "") -> InvalidSpec:
    return InvalidSpec([Fault("" if mark is None else f"line {mark.line + 1}", message, hint)])


class _Dumper(yaml.SafeDumper):
    """Writes YAML as people do: lists are indented below their field, there are no aliases, and text that `parse_yaml`
    would read as another type is quoted."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    quoted = not isinstance(_plain(text), str)
    # Text of several lines stays readable where YAML allows it.
    style = "'" if quoted else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(mapping: Mapping[str, Any]) -> str:
    """Returns the mapping as YAML text; `parse_yaml` of the text gives the same mapping."""
    return yaml.dump(dict(mapping), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
