"""Handles a cluster while an apply waits for jobs to end, possibly for days: creates machines that Slurm requests and
acts on faults."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.server.backend.connections import ClusterConnections
from headway.services.cluster_backend import WaitForJobs

if TYPE_CHECKING:
    from headway.autoscale.executor import Autoscaler
    from headway.cluster.context import ReportProgress


@dataclass
class WatchWhileWaiting:
    """headway.cluster.scaling.scale_in.WaitingWork. The cluster is, until the wait is over, as its file was before; what is
    made meanwhile is to have a place in the one that comes (`after`)."""

    held: ClusterConnections
    say: ReportProgress
    after: Cluster
    waiting: WaitForJobs | None = None
    waker: Autoscaler | None = None
    nodes: frozenset[str] = field(default_factory=frozenset)  # those whose jobs were waited for at the last look

    async def step(self, names: Collection[str]) -> None:
        from headway.autoscale.executor import Autoscaler

        self.nodes = frozenset(names)
        if self.waiting is not None:
            await self.waiting.begin()
        if self.held.cluster is None:
            return
        if self.waker is None:
            self.waker = Autoscaler(self.held.cluster, self.held.env, next_file=self.after)
        self.waker.busy_nodes = self.nodes
        for where, text in await self.waker.scale():
            await self.say(where, text)

    async def other_operation_waits(self) -> bool:
        return self.waiting is not None and await self.waiting.others(self.nodes)

    async def finish_tasks(self) -> None:
        if self.waiting is not None:
            await self.waiting.end()
        if self.waker is not None:
            await self.waker.pause()
            self.waker = None

    async def close(self) -> None:
        if self.waker is not None:
            await self.waker.close()
            self.waker = None
