"""Models of a cluster's volumes and of their speed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.domain.storage.speed_test import DEFAULT_SPEED_TEST_MIB
from headway.schemas.base import RequestModel, ResponseModel


class VolumeSpeedIn(RequestModel):
    """A measurement of a cluster's volumes from one machine."""

    node: Annotated[str, Field(max_length=100)] = ""  # "" is the head
    mib: Annotated[int, Field(ge=4, le=65_536)] = DEFAULT_SPEED_TEST_MIB  # MiB written to each volume


class VolumeSpeedOut(ResponseModel):
    """Throughput of a volume in MiB/s, measured from one machine. `error` says why it could not be measured."""

    path: str
    write_mib_s: float = 0.0
    read_mib_s: float = 0.0
    checkpoint_mib_s: float = 0.0
    error: str = ""


class UnmountedNodeOut(ResponseModel):
    """A node on which a volume is not available, and why according to its health checks."""

    node: str
    why: str


class MeasuredOut(VolumeSpeedOut):
    """The last measurement of a volume."""

    node: str  # node from which it was measured
    mib: int  # MiB written
    at: float


class QuotaUseOut(ResponseModel):
    """What one user's folder on a volume holds, and its limit."""

    user: str
    used_bytes: int
    limit_bytes: int


class VolumeOut(ResponseModel):
    """A volume. `size_bytes`, `used_bytes` and `free_bytes` are as seen from the head; null if the head cannot see it,
    and `fault` says why. `quotas` are those of the viewer, for operators and admins those of all users; `quota_fault` says
    why the limits of the cluster file are not enforced."""

    path: str
    type: str = ""  # file system type; "" is Headway's own volume
    source: str = ""
    read_only: bool = False
    size_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    fault: str = ""
    nodes: int = 0  # number of nodes that have it
    lost: list[UnmountedNodeOut] = []
    quotas: list[QuotaUseOut] = []
    quota_fault: str = ""
    measured: MeasuredOut | None = None  # result of the last `headway storage bench`


class StorageOut(ResponseModel):
    """A cluster's volumes."""

    cluster: str
    volumes: list[VolumeOut]
    stale: str = ""  # why the head's figures could not be read
