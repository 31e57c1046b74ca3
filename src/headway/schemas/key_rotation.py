"""Request model of key rotation."""

from __future__ import annotations

from headway.domain.access.cluster_key import ClusterKey
from headway.schemas.base import RequestModel


class RotateIn(RequestModel):
    """The key to replace by a new one."""

    what: ClusterKey
