"""The server's cluster backend: one object per subject, all with the same pool of connections."""

from __future__ import annotations

from pathlib import Path

from headway.server.cluster_backend.backups import Backups
from headway.server.cluster_backend.cluster_lifecycle import ClusterLifecycle
from headway.server.cluster_backend.connections import ConnectionPool
from headway.server.cluster_backend.health_loop import HealthLoop
from headway.server.cluster_backend.jobs.exec_commands import Commands
from headway.server.cluster_backend.jobs.job_control import Jobs
from headway.server.cluster_backend.jobs.job_secrets import JobSecrets
from headway.server.cluster_backend.key_rotation import KeyRotation
from headway.server.cluster_backend.monitoring import Monitoring
from headway.server.cluster_backend.nodes.fabric_tests import FabricTests
from headway.server.cluster_backend.nodes.node_actions import NodeActions
from headway.server.cluster_backend.nodes.rollouts import Rollouts
from headway.server.cluster_backend.slurm_state import SlurmState
from headway.server.cluster_backend.storage import Storage
from headway.server.cluster_backend.usage import Usage
from headway.store import Store


class Backend:
    """Implements services.cluster_backend.ClusterBackend, whose Protocols document the calls of each part. Heavy
    libraries are imported at first use."""

    def __init__(self, store: Store, state_dir: Path) -> None:
        self._pool = pool = ConnectionPool(store, state_dir)
        self.lifecycle = ClusterLifecycle(pool)
        self.backups = Backups(pool)
        self.keys = KeyRotation(pool)
        self.rollouts = Rollouts(pool)
        self.storage = Storage(pool)
        self.slurm = SlurmState(pool)
        self.jobs = Jobs(pool, self.slurm)
        self.job_secrets = JobSecrets(pool)
        self.commands = Commands(pool)
        self.nodes = NodeActions(pool)
        self.fabric = FabricTests(pool)
        self.usage = Usage(pool)
        self.monitoring = Monitoring(pool)
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
