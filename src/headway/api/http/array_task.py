"""The query parameter `task` of endpoints and pages of one job."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

ArrayTask = Annotated[str, Query(pattern=r"^\d{0,9}$", description="only this task of an array")]
