"""Keeps the connections to each cluster open between requests: SSH, slurmrestd, the cluster's context and its health loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Unreachable
from headway.server.slurm_poller.client import SlurmPoller
from headway.store import Store

if TYPE_CHECKING:
    from headway.autoscale.autoscaler import Autoscaler
    from headway.cluster.context import ClusterContext
    from headway.health.context import HealthContext
    from headway.health.incidents.engine import IncidentEngine
    from headway.health.slurm_reconciler import SlurmReconciler
    from headway.jobs.remote.helper_pool import HelperPool
    from headway.jobs.view.progress import ProgressReader
    from headway.slurm.accounting.sacct_jobs import RecentJobs
    from headway.slurm.reader import SlurmReader

# Seconds between queries to the provider for the head's address: a query takes longer than most commands on the head.
LOOK_S = 2.0


@dataclass(frozen=True)
class SlurmConnection:
    """The connections and readers for one head."""

    links: HelperPool
    head: Machine
    version: str
    reader: SlurmReader
    progress: ProgressReader
    history: RecentJobs
    poll: SlurmPoller

    async def close(self) -> None:
        """Closes the poller, the helper processes and the reader."""
        await self.poll.close()
        await self.links.close()
        await self.reader.close()


@dataclass
class ClusterConnections:
    """The open connections to one cluster, the objects that use them, and the locks of its actions."""

    context: ClusterContext
    key: object  # None if the connections are to be reopened at the next use
    slurm: SlurmConnection | None = None
    looked_at: float = 0.0  # monotonic time when the provider was last queried for the head
    cluster: Cluster | None = None  # from its newest file; long work that began with an older file reads it here
    reconciler: SlurmReconciler | None = None
    jobs: tuple[JobState, ...] = ()  # from the latest reading of Slurm
    incident_engine: IncidentEngine | None = None
    autoscaler: Autoscaler | None = None
    # locked while an apply or the autoscaler creates machines
    machine_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # locked while this server acts on faults, so that only one action runs at a time
    fault_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    listing: asyncio.Task[tuple[Machine, ...]] | None = None

    async def machines(self, cluster: str) -> tuple[Machine, ...]:
        """Returns the cluster's machines that the provider lists. Concurrent callers share one query: podman needs
        seconds on a busy host, and a reading of Slurm that waits for two queries would time out."""
        if self.listing is None or self.listing.done():
            self.listing = asyncio.create_task(self.context.provider.list(cluster))
        return await asyncio.shield(self.listing)

    def engine_for(self, cluster: Cluster) -> IncidentEngine:
        """Returns the incident engine, set to the given cluster. Creates it at the first call."""
        from headway.health.incidents.engine import IncidentEngine

        if self.incident_engine is None:
            self.incident_engine = IncidentEngine(cluster, self.context)
        self.incident_engine.use_cluster(cluster)
        return self.incident_engine


class ConnectionPool:
    """Opens connections at first use. `forget` closes those of one cluster, `close` all. Heavy libraries are
    imported at first use."""

    def __init__(self, store: Store, state_dir: Path) -> None:
        self.store = store
        self.state_dir = state_dir
        self._open: dict[str, ClusterConnections] = {}
        self._opening = asyncio.Lock()

    async def forget(self, cluster: str) -> None:
        """Closes all connections to a cluster and stops its automatic actions."""
        opened = self._open.pop(cluster, None)
        if opened is not None:
            if opened.incident_engine is not None:
                await opened.incident_engine.tasks.close()
            if opened.autoscaler is not None:
                await opened.autoscaler.close()
            if opened.slurm is not None:
                await opened.slurm.close()
            await opened.context.close()

    async def close(self) -> None:
        """Closes all connections to all clusters and stops their automatic actions."""
        await asyncio.gather(*(self.forget(name) for name in list(self._open)), return_exceptions=True)

    async def stand_by(self) -> None:
        """Stops all automatic actions because another server now leads; they restart when this server leads again.
        Open connections stay open for work in progress, but the next use reopens them: the leader may change keys
        and heads before this server notices."""
        ending: list[Awaitable[None]] = []
        for opened in list(self._open.values()):
            if opened.incident_engine is not None:
                ending.append(opened.incident_engine.tasks.close())
            if opened.autoscaler is not None:
                ending.append(opened.autoscaler.close())
            opened.reconciler = opened.incident_engine = opened.autoscaler = opened.key = None
        await asyncio.gather(*ending)

    async def context(self, cluster: Cluster) -> ClusterContext:
        """Returns the cluster's context, with open connections."""
        return (await self.opened(cluster)).context

    @contextlib.asynccontextmanager
    async def context_for_plan(self, cluster: Cluster) -> AsyncIterator[ClusterContext]:
        """Yields a context for one read-only plan. The given file may name other hosts than the running cluster: in
        that case a separate context is opened and closed again, so that the cluster's open connections are not
        replaced."""
        opened = self._open.get(cluster.name)
        if opened is None or opened.key == _key(cluster):
            yield await self.context(cluster)
            return
        from headway.cluster.context import open_context

        context = await open_context(cluster, self.store, self.state_dir)
        try:
            yield context
        finally:
            await context.close()

    async def opened(self, cluster: Cluster) -> ClusterConnections:
        """Returns the cluster's connections. Reopens them if the provider or the hosts in its file have changed."""
        key = _key(cluster)
        async with self._opening:
            for name in [name for name, connections in self._open.items() if connections.key is None]:
                await self.forget(name)
            opened = self._open.get(cluster.name)
            if opened is not None and opened.key != key:
                await self.forget(cluster.name)
                opened = None
            if opened is None:
                from headway.cluster.context import open_context

                context = await open_context(cluster, self.store, self.state_dir)
                opened = self._open[cluster.name] = ClusterConnections(context, key)
        if opened.context.connections.keyless:  # another server may have created the cluster in the meantime
            opened.context.connections.use_key(await self.store.secrets.get(cluster.name, "bootstrap_key") or "")
        return opened

    async def slurm(self, cluster: Cluster) -> SlurmConnection:
        """Returns the connection to the current head. A head that was recreated has another address or host key, so
        the connection is checked every LOOK_S seconds and replaced if they changed. Raises Unreachable."""
        from headway.cluster.keys.secrets import secret_content
        from headway.jobs.remote.helper_pool import HelperPool
        from headway.jobs.view.progress import ProgressReader
        from headway.slurm.accounting.sacct_jobs import RecentJobs
        from headway.slurm.reader import SlurmReader

        opened = await self.opened(cluster)
        async with opened.lock:
            if opened.slurm is not None and time.monotonic() - opened.looked_at < LOOK_S:
                return opened.slurm
            machines = await opened.machines(cluster.name)
            head = await self._head(cluster, opened.context, {machine.name: machine for machine in machines})
            if head is None:
                raise Unreachable(f"{cluster.head} does not exist", hint="headway apply creates it again")
            opened.looked_at = time.monotonic()
            known = opened.slurm
            if known is not None and (known.head, known.version) == (head, cluster.slurm_version):
                return known
            secrets = await self.store.secrets.of_cluster(cluster.name)
            if "jwt_key" not in secrets:
                raise Unreachable(f"{cluster.name} is not set up yet", hint=f"headway status {cluster.name}")
            if known is not None:
                await known.close()
            connections, jwt_key = opened.context.connections, secret_content(secrets, "jwt_key")
            links = HelperPool(connections)
            reader = SlurmReader(connections, head, jwt_key, cluster.slurm_version)
            poll = SlurmPoller(head, secrets.get("bootstrap_key", ""), jwt_key, cluster.slurm_version)
            history = RecentJobs(links, head, cluster.slurm_version)
            opened.slurm = SlurmConnection(
                links, head, cluster.slurm_version, reader, ProgressReader(links, head), history, poll
            )
            return opened.slurm

    @contextlib.asynccontextmanager
    async def fault_lock(self, cluster: Cluster, opened: ClusterConnections) -> AsyncIterator[None]:
        """Holds the lock for acting on a cluster's faults, in this server and across all servers of the database."""
        async with opened.fault_lock, self.store.server_locks.lock(f"acting/{cluster.name}"):
            yield

    @contextlib.asynccontextmanager
    async def machine_lock(self, cluster: Cluster) -> AsyncIterator[ClusterConnections]:
        """Holds the lock for creating machines, so that no other task of this server creates machines of the cluster."""
        opened = await self.opened(cluster)
        async with opened.machine_lock:  # take the lock first: a running autoscaler pass may start another machine
            if opened.autoscaler is not None:
                await opened.autoscaler.pause()
                opened.autoscaler = None
            yield opened

    async def health_context(self, cluster: Cluster) -> HealthContext:
        """Returns the context in which the health loop and the actions of people handle the cluster's nodes."""
        return (await self.opened(cluster)).engine_for(cluster).context

    @staticmethod
    async def _head(cluster: Cluster, context: ClusterContext, machines: dict[str, Machine]) -> Machine | None:
        from headway.cluster.active_head import active_head

        return machines.get(cluster.head) if cluster.controllers == 1 else await active_head(cluster, context, machines)


def _key(cluster: Cluster) -> object:
    """Returns the provider, the hosts and the cloud of the cluster. If they change, the machines are different and open
    connections must be replaced."""
    return cluster.provider, cluster.rents_machines, cluster.hosts, cluster.cloud
