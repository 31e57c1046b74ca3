"""Options that have no effect together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_unset(given: Mapping[str, object], other: str, why: str) -> None:
    """Raises BadParameter for an option that would have no effect."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(f"--{name} can't be combined with {other}: {why}")
