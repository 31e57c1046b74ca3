"""Largest numbers of entries of the lists and mappings of a model, known before anything in them is checked."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Union, get_args, get_origin

from annotated_types import MaxLen
from pydantic import BaseModel, RootModel

MOST_ELSEWHERE = 1000  # entries of a collection that the model does not declare
_MOST_UNKNOWN_FIELDS = 50  # fields of a mapping that its model does not have; each of them is a fault


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many entries a value may have, and the sizes of what is in it."""

    most: int = MOST_ELSEWHERE
    fields: dict[str, Sizes] = field(default_factory=dict)  # of a mapping with fixed fields
    item: Sizes | None = None  # of the values of a list, or of a mapping with free names
    declared: bool = True  # False: a collection without a limit in the model

    def inside(self, key: str | int) -> Sizes:
        """Returns the sizes of an entry."""
        found = self.fields.get(key) if isinstance(key, str) else None
        return found or self.item or UNKNOWN


UNKNOWN = Sizes()


@lru_cache(maxsize=8)
def model_sizes(model: type[BaseModel]) -> Sizes:
    """Returns the sizes of a model."""
    if issubclass(model, RootModel):
        return _sizes(model.model_fields["root"].annotation, model.model_fields["root"].metadata)
    parts = {
        name: _sizes(field_info.annotation, field_info.metadata) for name, field_info in model.model_fields.items()
    }
    return Sizes(len(parts) + _MOST_UNKNOWN_FIELDS, parts)


def _sizes(annotation: Any, metadata: list[Any]) -> Sizes:
    while hasattr(annotation, "__metadata__"):
        metadata = [*metadata, *annotation.__metadata__]
        annotation = annotation.__origin__
    if get_origin(annotation) in (Union, types.UnionType):
        for choice in get_args(annotation):
            found = _sizes(choice, metadata)
            if found is not UNKNOWN:
                return found
        return UNKNOWN
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return model_sizes(annotation)
    if get_origin(annotation) in (list, dict):
        limits = [note.max_length for note in _flat(metadata) if isinstance(note, MaxLen)]
        return Sizes(
            min(limits, default=MOST_ELSEWHERE), item=_sizes(get_args(annotation)[-1], []), declared=bool(limits)
        )
    return UNKNOWN


def _flat(metadata: list[Any]) -> list[Any]:
    """Returns the notes of an annotation, and those within its Field()."""
    return [inner for note in metadata for inner in (note, *getattr(note, "metadata", ()))]
