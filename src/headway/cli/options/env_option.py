"""--env: variables of a job, given by value or taken from this environment."""

from __future__ import annotations

import os
from typing import Annotated

import typer

# For commands that submit a job again.
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Environment variable that was masked as secret and not stored; without a value, taken from this shell.",
    ),
]


def parse_env_options(words: list[str]) -> dict[str, str]:
    """Returns {"A": "1", "B": its value in this environment} of ["A=1", "B"]. Raises BadParameter for an unset variable."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name not in os.environ:
            raise typer.BadParameter(f"--env {name}: it is not set in this environment; give --env {name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found
