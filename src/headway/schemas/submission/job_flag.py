"""Describes how users enter a field of a job request: `headway run` makes its options from it and the submit page its
fields."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class JobFlag:
    """Metadata of a request's field (in `Annotated`). The help text is the field's `description`."""

    options: tuple[str, ...]  # options of `headway run`, such as ("-N", "--nodes")
    metavar: str = ""
    form: str = ""  # name of the field on the submit page; "" if the page has none


def job_flags(model: type[BaseModel]) -> dict[str, tuple[FieldInfo, JobFlag]]:
    """Returns the model's fields that have a JobFlag, by name."""
    return {
        name: (field, flag)
        for name, field in model.model_fields.items()
        for flag in field.metadata
        if isinstance(flag, JobFlag)
    }
