"""Datasets with versions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headway.schemas.base import Ask, Wire

DatasetName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]


_Key = Annotated[str, Field(max_length=8192, pattern=r"^[\x21-\x7e]*$")]


class S3In(Ask):
    """How a bucket is reached. Keys are kept until the operation ends; without them only public objects can be read."""

    # "" = Amazon's.
    endpoint_url: Annotated[str, Field(max_length=500, pattern=r"^(https?://[^\s@/?#]+(/[^\s@?#]*)?)?$")] = ""
    region: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9-]*$")] = ""
    key_id: _Key = ""
    secret: _Key = ""
    token: _Key = ""


class DatasetIn(Ask):
    """`source`: a folder of the server's machine, absolute, or s3://BUCKET/PREFIX; `s3` is for the latter alone."""

    name: DatasetName
    source: Annotated[
        str, Field(pattern=r"^(/[^\x00-\x1f]*|s3://[a-z0-9][a-z0-9.-]{1,62}(/[^\x00-\x1f]*)?)$", max_length=1100)
    ]
    s3: S3In | None = None


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
