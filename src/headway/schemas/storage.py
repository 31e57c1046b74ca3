"""Models of a cluster's volumes."""

from __future__ import annotations

from headway.schemas.backups import VolumeSpeedOut
from headway.schemas.base import ResponseModel


class LostOut(ResponseModel):
    """A node on which a volume is not available, and why according to its health checks."""

    node: str
    why: str


class MeasuredOut(VolumeSpeedOut):
    """The last measurement of a volume."""

    node: str  # node from which it was measured
    mib: int  # MiB written
    at: float


class VolumeOut(ResponseModel):
    """A volume. `size_bytes`, `used_bytes` and `free_bytes` are as seen from the head; null if the head cannot see it,
    and `fault` says why."""

    path: str
    type: str = ""  # file system type; "" is Headway's own volume
    source: str = ""
    read_only: bool = False
    size_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    fault: str = ""
    nodes: int = 0  # number of nodes that have it
    lost: list[LostOut] = []
    measured: MeasuredOut | None = None  # result of the last `headway storage bench`


class StorageOut(ResponseModel):
    """A cluster's volumes."""

    cluster: str
    volumes: list[VolumeOut]
    stale: str = ""  # why the head's figures could not be read
