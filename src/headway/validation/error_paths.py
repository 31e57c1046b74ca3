"""Converts pydantic's errors to faults, and removes faulty values from a mapping so that every fault shows in one run."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headway.errors import Fault
from headway.validation import syntax_rules, volume_mount
from headway.validation.collection_sizes import Sizes, model_sizes

DEEPEST = 24
MOST_VALUES = 300_000
MOST_FAULTS = 200
MOST_HINTED = 2000
Loc = tuple[str | int, ...]
_URLS = {("alerts", "webhook"), ("alerts", "chat"), ("packages", "index"), ("packages", "proxy")}
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")


def path_text(loc: Sequence[str | int]) -> str:
    """Returns the printable path of a place: ("teams", "vision", "users", 1) gives "teams.vision.users[1]"."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if _PLAIN_KEY.fullmatch(part) else f'"{syntax_rules.printable(part)}"'
            text += f".{word}" if text else word
    return text


def text_faults(value: object, model: type[BaseModel]) -> tuple[list[tuple[Loc, Fault]], object]:
    """Returns the faults of all texts in a mapping, and a copy made of plain values only.

    SSH keys have their own rule. Values that YAML cannot express and values nested too deeply are faults too. A list or
    mapping with more entries than `model` allows is a fault, and empty in the copy: its entries are not looked at."""
    walker = _Walker()
    copy = walker.copy(value, (), model_sizes(model))
    return walker.found, copy


class _Walker:
    def __init__(self) -> None:
        self.found: list[tuple[Loc, Fault]] = []
        self.count = 0

    def copy(self, value: object, loc: Loc, sizes: Sizes) -> object:
        """Returns a copy of plain values; faults are added to `found`."""
        self.count += 1
        if self.count > MOST_VALUES:
            if self.count == MOST_VALUES + 1:
                self._note((), "the file holds too many values")
            return None
        if len(loc) > DEEPEST:
            self._note(loc[:3], "is nested too deeply")
            return None
        if isinstance(value, str):
            return self._text(value, loc)
        if isinstance(value, dict | list) and len(value) > sizes.most:
            self._note(loc, f"has {len(value)} entries, at most {sizes.most} are allowed")
            return type(value)()
        if isinstance(value, dict):
            return self._mapping(value, loc, sizes)
        if isinstance(value, list):
            return [self.copy(item, (*loc, index), sizes.inside(index)) for index, item in enumerate(value)]
        if value is None or type(value) in (bool, int, float):
            return value
        self._note(loc, "is not a YAML value")
        return None

    def _mapping(self, value: dict[Any, Any], loc: Loc, sizes: Sizes) -> dict[str, object]:
        copy: dict[str, object] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self._note(loc, "has a field whose name is not text")
                continue
            problem = syntax_rules.text_fault(key) or ("is too long for a name" if len(key) > 200 else "")
            if problem:
                self._note((*loc, key), problem)
                continue
            copy[key] = self.copy(item, (*loc, key), sizes.inside(key))
        return copy

    def _text(self, value: str, loc: Loc) -> str:
        if "ssh_keys" not in loc:
            allowed = syntax_rules.URL_TEXT if loc in _URLS else syntax_rules.PLAIN_TEXT
            if loc[:2] == ("storage", "volumes") and loc[3:] == ("mount",):
                allowed = volume_mount.MOUNT_TEXT
            most = 4096
            if loc[:1] == ("environments",):
                allowed, most = syntax_rules.REQUIREMENTS_TEXT, syntax_rules.MAX_REQUIREMENTS
            elif loc == ("gpu", "repository", "key") or (loc[:1], loc[-1:]) == (("containers",), ("sigstore_key",)):
                allowed, most = syntax_rules.ARMORED_TEXT, syntax_rules.MAX_ARMORED
            elif (loc[:1], loc[-1:]) == (("scripts",), ("text",)):
                allowed, most = syntax_rules.SCRIPT_TEXT, syntax_rules.MAX_SCRIPT
            elif loc[:2] == ("cost", "invoice"):
                allowed = syntax_rules.INVOICE_TEXT
            problem = syntax_rules.text_fault(value, allowed) or ("is too long" if len(value) > most else "")
            if problem:
                self._note(loc, problem)
        return value

    def _note(self, loc: Loc, message: str) -> None:
        self.found.append((loc, Fault(path_text(loc), message)))


def pydantic_faults(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Loc, Fault]]:
    """Yields each of pydantic's errors as a place in the mapping and a fault in Headway's words. Faults after the first
    MOST_HINTED have no specific message or hint."""
    for number, detail in enumerate(error.errors(include_url=False)):
        loc = tuple(part for part in detail["loc"] if part != "[key]")
        message, hint = _words_for(detail, loc, model) if number < MOST_HINTED else ("is not allowed here", "")
        yield loc, Fault(path_text(loc), message, hint)


def drop_values(value: object, places: Sequence[Loc]) -> dict[str, list[int]]:
    """Removes the values at these places from a mapping of plain values, in place.

    Returns, for each list that lost items, the original indexes of those that stayed."""
    gone = object()
    touched: dict[Loc, list[Any]] = {}
    for loc in places:
        holder = _at(value, loc[:-1]) if loc else None
        if isinstance(holder, dict):
            holder.pop(loc[-1], None)
        elif isinstance(holder, list) and isinstance(loc[-1], int) and loc[-1] < len(holder):
            holder[loc[-1]] = gone
            touched[loc[:-1]] = holder
    kept = {}
    for loc, holder in touched.items():
        kept[path_text(loc)] = [index for index, item in enumerate(holder) if item is not gone]
        holder[:] = [item for item in holder if item is not gone]
    return kept


def _at(value: object, loc: Loc) -> object:
    for part in loc:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


_TYPES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of names to fields",
    "model_type": "must be a mapping of fields",
    "model_attributes_type": "must be a mapping of fields",
    "string_pattern_mismatch": "has a form that is not allowed here",
    "too_short": "must not be empty",
    "too_long": "has too many entries",
    "missing": "is missing",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "must be at least"),
    "greater_than": ("gt", "must be more than"),
    "less_than_equal": ("le", "must be at most"),
    "less_than": ("lt", "must be less than"),
}


_COMMA = "in { } a comma ends a value: put the whole value in quotes"


def _words_for(detail: ErrorDetails, loc: Loc, model: type[BaseModel]) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "headway":
        return str(context["text"]), str(context["hint"])
    if kind == "value_error":  # a validator's own words
        return str(context["error"]), ""
    if kind == "extra_forbidden":
        fields = fields_at(model, loc[:-1])
        there = f"known here: {syntax_rules.join_words(fields, 'and')}"
        hint = (
            _elsewhere(model, loc)
            or syntax_rules.did_you_mean(str(loc[-1]), fields)
            or (f"{_COMMA}; {there}" if detail["input"] is None else there)
        )
        return "unknown field", hint
    if kind == "literal_error":
        return f"must be {str(context['expected']).replace(chr(39), '')}", ""
    if kind in _BOUNDS:
        name, text = _BOUNDS[kind]
        return f"{text} {context[name]:g}", ""
    if kind == "string_type":
        return _TYPES[kind], "put it in quotes"
    return _TYPES.get(kind, "is not allowed here"), ""


def fields_at(model: type[BaseModel], loc: Loc) -> list[str]:
    """Returns the names of the fields that are allowed at a place of the file."""
    part = _part_at(model, loc)
    return list(part.model_fields) if part else []


def _elsewhere(model: type[BaseModel], loc: Loc) -> str:
    """Returns where an unknown field belongs, "" if that is not known."""
    known = getattr(_part_at(model, loc[:-1]), "elsewhere", {})
    return str(known.get(loc[-1], ""))


def _part_at(model: type[BaseModel], loc: Loc) -> type[BaseModel] | None:
    annotation: Any = model
    for part in loc:
        annotation = _step(_bare(annotation), part)
    bare = _bare(annotation)
    return bare if isinstance(bare, type) and issubclass(bare, BaseModel) else None


def _step(annotation: Any, part: str | int) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        return field.annotation if field else None
    arguments = get_args(annotation)
    if get_origin(annotation) is dict:
        return arguments[1]
    return arguments[0] if arguments else None


def _bare(annotation: Any) -> Any:
    """Returns the annotation without Annotated and Optional."""
    while hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [item for item in get_args(annotation) if item is not type(None)]
        return _bare(inner[0])
    return annotation


def sort_faults(found: Sequence[tuple[Loc, Fault]], first: Mapping[str, int] | None = None) -> list[Fault]:
    """Returns distinct faults, ordered by the top-level field's place in `first`, and at most MOST_FAULTS of them, errors
    before warnings."""
    order = first or {}
    unique = list(dict.fromkeys(fault for _, fault in found))
    unique.sort(key=lambda fault: order.get(re.split(r"[.\[]", fault.path, maxsplit=1)[0], 999 if fault.path else -1))
    if len(unique) > MOST_FAULTS:
        unique.sort(key=lambda fault: fault.level != "error")
        cut = unique[MOST_FAULTS:]
        if cut[0].level == "error":
            return [*unique[:MOST_FAULTS], Fault("", f"and {len(cut)} more faults", "correct these first")]
        return [*unique[:MOST_FAULTS], Fault("", f"and {len(cut)} more warnings", "correct these first", "warning")]
    return unique
