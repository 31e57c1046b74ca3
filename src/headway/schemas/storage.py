"""A cluster's volumes as they are."""

from __future__ import annotations

from headway.schemas.backups import VolumeSpeedOut
from headway.schemas.base import Wire


class LostOut(Wire):
    """A node that a volume is not there for, and what its checks say."""

    node: str
    why: str


class MeasuredOut(VolumeSpeedOut):
    node: str  # measured from
    mib: int  # written
    at: float


class VolumeOut(Wire):
    """`size_bytes`, `used_bytes`, `free_bytes`: as the head sees them; null where it does not, and `fault` says why."""

    path: str
    type: str = ""  # of its file system; "" = Headway's own
    source: str = ""
    read_only: bool = False
    size_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    fault: str = ""
    nodes: int = 0  # that have it
    lost: list[LostOut] = []
    measured: MeasuredOut | None = None  # by the last `headway storage bench`


class StorageOut(Wire):
    cluster: str
    volumes: list[VolumeOut]
    stale: str = ""  # why the head's figures are not to be had
