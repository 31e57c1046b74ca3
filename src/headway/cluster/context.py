"""What the work on one cluster needs at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headway.domain.cluster import Cluster
from headway.providers.base import Provider
from headway.providers.registry import open_provider
from headway.store import Store
from headway.transport.ssh import Connections


class ReportProgress(Protocol):
    """Progress of a long work: an open step, or its end with `done` and its seconds."""

    async def __call__(
        self, step: str, text: str, *, level: str = "info", done: bool = False, seconds: float | None = None
    ) -> None: ...


@dataclass
class ClusterContext:
    provider: Provider
    store: Store
    connections: Connections
    state_dir: Path

    async def close(self) -> None:
        await self.connections.close()


async def open_context(cluster: Cluster, store: Store, state_dir: Path) -> ClusterContext:
    """Connections carry the cluster's bootstrap key when it has one already; apply gives it one."""
    secrets = await store.secrets.of_cluster(cluster.name)
    return ClusterContext(
        provider=open_provider(cluster.provider.name, state_dir, cluster.hosts),
        store=store,
        connections=Connections(secrets.get("bootstrap_key", "")),
        state_dir=state_dir,
    )
