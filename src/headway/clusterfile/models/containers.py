"""containers: how jobs run container images."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headway.validation.field_types import (
    Part,
)


class ContainersPart(Part):
    """Container runtime for --container-image."""

    backend: Literal["builtin", "enroot"] | None = Field(
        None,
        description="builtin: part of Headway's node images (default there). enroot: Enroot and Pyxis, which must be "
        "installed on your machines; Headway configures them.",
    )
