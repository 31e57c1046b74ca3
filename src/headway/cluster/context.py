"""ClusterContext: provider, store, SSH connections and state folder for work on one cluster."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.provider_traits import ProviderTraits
from headway.providers.base import Provider
from headway.providers.registry import open_providers
from headway.store import Store
from headway.transport.ssh import Connections


@dataclass
class ClusterContext:
    """One cluster's provider, store, SSH connections and the server's state folder."""

    provider: Provider
    store: Store
    connections: Connections
    state_dir: Path
    # By machine. Held while an apply sets the machine up, and while a repair stops and starts it.
    machine_locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    # Held while running machines are told the addresses of new ones.
    address_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def machines(self, cluster: str) -> dict[str, Machine]:
        """Returns all machines of the cluster that exist, running or not, by name."""
        return {machine.name: machine for machine in await self.provider.list(cluster)}

    def traits_of(self, cluster: Cluster, name: str) -> ProviderTraits:
        """Returns the traits of the provider of a head's or a slot's machine."""
        group = cluster.group_of.get(name)
        return group.provider if group is not None and group.provider is not None else self.provider.traits

    async def close(self) -> None:
        """Closes the SSH connections."""
        await self.connections.close()


async def open_context(cluster: Cluster, store: Store, state_dir: Path) -> ClusterContext:
    """Opens the context. Its connections use the cluster's bootstrap key if it has one; otherwise apply creates it."""
    return ClusterContext(
        provider=open_providers(cluster, state_dir),
        store=store,
        connections=Connections(await store.secrets.get(cluster.name, "bootstrap_key") or ""),
        state_dir=state_dir,
    )
