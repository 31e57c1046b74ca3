"""Hands readings to the watch of each cluster (headway.health), which acts on faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headway.domain.cluster import Cluster
from headway.domain.slurm.state import JobState, NodeState


class Watcher(Protocol):
    async def step(
        self, cluster: Cluster, nodes: Iterable[NodeState], jobs: Iterable[JobState]
    ) -> list[tuple[str, str]]:
        """What was done, as (node or job, words)."""
        ...

    async def hurry(self, cluster: Cluster) -> list[tuple[str, str]]:
        """The same, of what can't wait while an operation works on the cluster."""
        ...
