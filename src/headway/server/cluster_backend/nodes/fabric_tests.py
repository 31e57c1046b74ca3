"""Measures the bandwidth between nodes, and acts on what is slow."""

from __future__ import annotations

from collections.abc import Sequence

from headway.domain.cluster import Cluster
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.schemas.nodes.fabric_tests import FabricTestOut
from headway.server.cluster_backend.connections import ConnectionPool


class FabricTestsBackend:
    """Implements services.cluster_backend.ClusterFabricTests."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def test_fabric(
        self, cluster: Cluster, nodes: Sequence[str], report: ReportProgress, waits: OperationWaits
    ) -> FabricTestOut:
        from headway.health.fabric_test import FabricTest

        opened = await self._pool.opened(cluster)
        engine = opened.engine_for(cluster)
        test = FabricTest(engine.context, report, waits)
        await test.run(nodes)
        async with self._pool.fault_lock(cluster, opened):
            await test.open_incidents(engine.tasks.cancel)
            if self._pool.store.server_locks.leads:  # otherwise the leading server continues with them
                await engine.resume_open()
        return test.result()
