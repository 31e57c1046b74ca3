"""Handles a cluster while an apply waits for jobs to end, possibly for days: creates machines that Slurm requests and
acts on faults."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.operation_progress import ReportProgress
from headway.server.cluster_backend.connections import ClusterConnections
from headway.services.cluster_backend import WaitForJobs

if TYPE_CHECKING:
    from headway.autoscale.autoscaler import Autoscaler


@dataclass
class ApplyWait:
    """Implements headway.cluster.scaling.scale_in.BackgroundTasks. Until the wait is over the cluster runs by its
    previous file; machines created meanwhile must have a place in the next one (`next_file`)."""

    connections: ClusterConnections
    report: ReportProgress
    next_file: Cluster
    waiting: WaitForJobs | None = None
    autoscaler: Autoscaler | None = None
    nodes: frozenset[str] = field(default_factory=frozenset)  # nodes whose jobs were waited for at the last pass

    async def step(self, names: Collection[str]) -> None:
        """Runs one pass while the jobs on these nodes are waited for."""
        from headway.autoscale.autoscaler import Autoscaler

        self.nodes = frozenset(names)
        if self.waiting is not None:
            await self.waiting.begin()
        if self.connections.cluster is None:
            return
        if self.autoscaler is None:
            self.autoscaler = Autoscaler(self.connections.cluster, self.connections.context, next_file=self.next_file)
        self.autoscaler.busy_nodes = self.nodes
        for where, text in await self.autoscaler.scale():
            await self.report(where, text)

    async def other_operation_waits(self) -> bool:
        """Returns whether a queued operation should run before this one continues."""
        return self.waiting is not None and await self.waiting.others(self.nodes)

    async def finish_tasks(self) -> None:
        """Ends the wait and pauses the autoscaler."""
        if self.waiting is not None:
            await self.waiting.end()
        if self.autoscaler is not None:
            await self.autoscaler.pause()
            self.autoscaler = None

    async def close(self) -> None:
        """Closes the autoscaler."""
        if self.autoscaler is not None:
            await self.autoscaler.close()
            self.autoscaler = None
