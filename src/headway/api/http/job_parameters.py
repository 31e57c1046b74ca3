"""Query and path parameters that several job endpoints take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

Task = Annotated[str, Query(pattern=r"^\d{0,9}$", description="only this task of an array")]
Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
