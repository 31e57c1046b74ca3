"""What goes on while an apply waits for jobs to end, days perhaps: machines that Slurm asks for are made here, faults are acted
on by the cluster's watch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.server.backend.connections import Open
from headway.services.cluster_backend import Waiting

if TYPE_CHECKING:
    from headway.autoscale.executor import Waker
    from headway.cluster.context import Say


@dataclass
class Beside:
    """headway.cluster.scaling.scale_in.Beside. The cluster is, until the wait is over, as its file was before; what is
    made meanwhile is
    to have a place in the one that comes (`after`)."""

    held: Open
    say: Say
    after: Cluster
    waiting: Waiting | None = None
    waker: Waker | None = None
    nodes: frozenset[str] = field(default_factory=frozenset)  # those whose jobs were waited for at the last look

    async def look(self, names: Collection[str]) -> None:
        from headway.autoscale.executor import Waker

        self.nodes = frozenset(names)
        if self.waiting is not None:
            await self.waiting.begin()
        if self.held.cluster is None:
            return
        if self.waker is None:
            self.waker = Waker(self.held.cluster, self.held.env, after=self.after)
        self.waker.barred = self.nodes
        for where, text in await self.waker.step():
            await self.say(where, text)

    async def others_wait(self) -> bool:
        return self.waiting is not None and await self.waiting.others(self.nodes)

    async def rest(self) -> None:
        if self.waiting is not None:
            await self.waiting.end()
        if self.waker is not None:
            await self.waker.rest()
            self.waker = None

    async def close(self) -> None:
        if self.waker is not None:
            await self.waker.close()
            self.waker = None
