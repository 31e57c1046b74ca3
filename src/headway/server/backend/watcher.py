"""The interface through which readings reach the health loop of each cluster (headway.health), which acts on faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headway.domain.cluster import Cluster
from headway.domain.slurm.state import JobState, NodeState


class Watcher(Protocol):
    """Acts on the faults of a cluster."""

    async def step(
        self, cluster: Cluster, nodes: Iterable[NodeState], jobs: Iterable[JobState]
    ) -> list[tuple[str, str]]:
        """Runs one pass of the health loop. Returns what was done, as (node or job, text)."""
        ...

    async def hurry(self, cluster: Cluster) -> list[tuple[str, str]]:
        """Handles only what can't wait while an operation runs on the cluster. Returns what was done, as (node or
        job, text)."""
        ...
