"""Datasets with versions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headway.wire.base import Ask, Wire

DatasetName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]


class DatasetIn(Ask):
    """`source`: a folder of the server's machine, absolute."""

    name: DatasetName
    source: Annotated[str, Field(pattern=r"^/[^\x00-\x1f]*$", max_length=1000)]


class DatasetRemoveIn(Ask):
    """`force`: although jobs' lineage names it; the lineage says so from then on."""

    force: bool = False


class DatasetOut(Wire):
    """One version. `state`: whole, as far as anybody knows; damaged, as `damage` says in lines."""

    name: str
    version: int
    path: str  # on every machine
    digest: str  # sha256 of its manifest
    files: int
    bytes: int
    source: str
    person: str
    at: float
    jobs: int = 0  # whose lineage names it
    state: Literal["whole", "damaged"] = "whole"
    checked_at: float | None = None  # every file was read again
    damage: str = ""
