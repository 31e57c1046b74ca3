"""containers: how jobs run container images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headway.catalog.providers import PROVIDERS
from headway.catalog.releases import IMAGES
from headway.validation.field_types import (
    Part,
)

if TYPE_CHECKING:
    ProviderName = str
    ImageName = str
else:  # type checkers do not accept a computed Literal
    ProviderName = Literal[tuple(PROVIDERS)]
    ImageName = Literal[tuple(IMAGES)]


class ContainersPart(Part):
    """Container runtime for --container-image."""

    backend: Literal["builtin", "enroot"] | None = Field(
        None,
        description="builtin: part of Headway's node images (default there). enroot: Enroot and Pyxis, which must be "
        "installed on your machines; Headway configures them.",
    )
