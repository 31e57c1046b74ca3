"""Models of datasets and their versions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel

DatasetName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]


_Key = Annotated[str, Field(max_length=8192, pattern=r"^[\x21-\x7e]*$")]


class S3In(RequestModel):
    """Access to an S3 bucket. The keys are kept until the operation ends. Without keys only public objects can be read."""

    # "" is Amazon's endpoint.
    endpoint_url: Annotated[str, Field(max_length=500, pattern=r"^(https?://[^\s@/?#]+(/[^\s@?#]*)?)?$")] = ""
    region: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9-]*$")] = ""
    key_id: _Key = ""
    secret: _Key = ""
    token: _Key = ""


class DatasetIn(RequestModel):
    """A new version of a dataset. `source` is an absolute path of a folder on the server's machine, or
    s3://BUCKET/PREFIX. `s3` is only for the latter."""

    name: DatasetName
    source: Annotated[
        str, Field(pattern=r"^(/[^\x00-\x1f]*|s3://[a-z0-9][a-z0-9.-]{1,62}(/[^\x00-\x1f]*)?)$", max_length=1100)
    ]
    s3: S3In | None = None


class DatasetRemoveIn(RequestModel):
    """`force`: remove the version although the lineage of jobs names it. Their lineage then says that it was removed."""

    force: bool = False


class DatasetOut(ResponseModel):
    """One version of a dataset. `state` is whole (no damage is known) or damaged; `damage` then lists the faults, one
    per line."""

    name: str
    version: int
    path: str  # the same on every machine
    digest: str  # sha256 of the manifest
    files: int
    bytes: int
    source: str
    person: str
    at: float
    jobs: int = 0  # number of jobs whose lineage names this version
    state: Literal["whole", "damaged"] = "whole"
    checked_at: float | None = None  # when every file was last read and compared
    damage: str = ""
