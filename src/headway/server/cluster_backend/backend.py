"""The server's cluster backend: one object per subject, all with the same pool of connections."""

from __future__ import annotations

from pathlib import Path

from headway.server.cluster_backend.accounting import UsageBackend
from headway.server.cluster_backend.backups import BackupsBackend
from headway.server.cluster_backend.cluster_lifecycle import LifecycleBackend
from headway.server.cluster_backend.connections import ConnectionPool
from headway.server.cluster_backend.health_loop import HealthLoop
from headway.server.cluster_backend.jobs.exec_commands import CommandsBackend
from headway.server.cluster_backend.jobs.job_control import JobsBackend
from headway.server.cluster_backend.jobs.job_secrets import JobSecretsBackend
from headway.server.cluster_backend.key_rotation import KeyRotationBackend
from headway.server.cluster_backend.monitoring import MonitoringBackend
from headway.server.cluster_backend.nodes.fabric_tests import FabricTestsBackend
from headway.server.cluster_backend.nodes.node_actions import NodeActionsBackend
from headway.server.cluster_backend.nodes.rollouts import RolloutsBackend
from headway.server.cluster_backend.rentals import RentalsBackend
from headway.server.cluster_backend.service_proxy import ServiceProxyBackend
from headway.server.cluster_backend.slurm_state import SlurmStateBackend
from headway.server.cluster_backend.storage import StorageBackend
from headway.server.cluster_backend.user_changes import UserChangesBackend
from headway.server.cluster_backend.whatif import WhatIfBackend
from headway.store import Store


class Backend:
    """Implements services.cluster_backend.ClusterBackend, whose Protocols document the calls of each part. Heavy
    libraries are imported at first use."""

    def __init__(self, store: Store, state_dir: Path) -> None:
        self._pool = pool = ConnectionPool(store, state_dir)
        self.lifecycle = LifecycleBackend(pool)
        self.backups = BackupsBackend(pool)
        self.keys = KeyRotationBackend(pool)
        self.rollouts = RolloutsBackend(pool)
        self.rentals = RentalsBackend(pool)
        self.storage = StorageBackend(pool)
        self.slurm = SlurmStateBackend(pool)
        self.jobs = JobsBackend(pool, self.slurm)
        self.job_secrets = JobSecretsBackend(pool)
        self.proxy = ServiceProxyBackend(pool)
        self.user_changes = UserChangesBackend(pool)
        self.commands = CommandsBackend(pool)
        self.nodes = NodeActionsBackend(pool)
        self.fabric = FabricTestsBackend(pool)
        self.whatif = WhatIfBackend(pool)
        self.usage = UsageBackend(pool)
        self.monitoring = MonitoringBackend(pool)
        self.health = HealthLoop(pool, self.slurm)

    async def forget(self, cluster: str) -> None:
        """Closes all connections to a cluster and stops its automatic actions."""
        await self._pool.forget(cluster)

    async def close(self) -> None:
        """Closes all connections to all clusters and stops their automatic actions."""
        await self._pool.close()

    async def stand_by(self) -> None:
        """Stops all automatic actions because another server now leads."""
        await self._pool.stand_by()
