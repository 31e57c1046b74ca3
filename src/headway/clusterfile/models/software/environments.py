"""environments and environment: software environments, and the default one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from headway.domain.environment import LABEL_PATTERN, NAME_PATTERN, NO_ENVIRONMENT, PYTORCH, address_with_password
from headway.validation import syntax_rules
from headway.validation.field_types import checked_by, value_error

_LABEL_HINT = "NAME, or NAME@VERSION as headway env ls prints it"


def _name_fault(name: str) -> str:
    if name == NO_ENVIRONMENT:
        return f"{NO_ENVIRONMENT} is not a name: it means no environment"
    return syntax_rules.name_fault(name)


def _requirements(value: object) -> object:
    """Returns the requirements as text: one package a line."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        if any("\n" in item for item in value):
            raise value_error("has a line break in a package", "give each package an item of its own")
        return "".join(f"{item}\n" for item in value)
    if not isinstance(value, str):
        raise value_error(
            "must be a list of packages, or the text of a requirements file", "for example [torch, numpy]"
        )
    return value


def _sound(text: str) -> str:
    if len(text) > syntax_rules.MAX_REQUIREMENTS:
        raise value_error("is too long")
    if address_with_password(text):
        raise value_error(
            "has an address with a password or token, which would be kept with the environment",
            "write it to .netrc in the home of the person who applies",
        )
    return text


def _label_fault(label: str) -> str:
    return "" if re.fullmatch(LABEL_PATTERN, label) else "is not an environment"


EnvironmentName = Annotated[
    str, checked_by(_name_fault), WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN}$"})
]
Requirements = Annotated[
    str,
    BeforeValidator(_requirements),
    AfterValidator(_sound),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]
ContainerImage = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\s-]\S*$")]
DefaultEnvironment = Annotated[
    str,
    checked_by(_label_fault, _LABEL_HINT),
    WithJsonSchema({"type": "string", "pattern": f"^{LABEL_PATTERN}$"}),
]


def resolve_environments(declared: Mapping[str, str], *, real_gpus: bool) -> dict[str, tuple[str, ...]]:
    """Returns the lines of the requirements file of each environment that an apply builds. Where GPUs are real, `pytorch`
    is one of them unless the file says otherwise; elsewhere it is made of the node image's own packages."""
    default = {PYTORCH: "torch\nnumpy\n"} if real_gpus else {}
    return {
        name: tuple(text.expandtabs().splitlines()) for name, text in {**default, **declared}.items() if text.strip()
    }
