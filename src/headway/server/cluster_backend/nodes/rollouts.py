"""Moves nodes and heads to another node image, and changes how the GPUs of nodes are divided."""

from __future__ import annotations

from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.server.cluster_backend.connections import ConnectionPool


class RolloutsBackend:
    """Implements services.cluster_backend.ClusterRollouts."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def plan_rollout(self, cluster: Cluster, *, back: bool, head: bool, by: bool) -> ChangeSet:
        from headway.rollout import cluster_rollout

        return await cluster_rollout.plan_rollout(await self._pool.health_context(cluster), back=back, head=head, by=by)

    async def roll_nodes(
        self, cluster: Cluster, report: ReportProgress, waits: OperationWaits, *, back: bool, until: float | None
    ) -> bool:
        from headway.rollout.cluster_rollout import roll_nodes

        tools = await self._pool.health_context(cluster)
        return await roll_nodes(tools, report, lambda: self._pool.machine_lock(cluster), waits, back=back, until=until)

    async def roll_heads(self, cluster: Cluster, report: ReportProgress, *, back: bool) -> None:
        from headway.rollout.image_rollout import has_images, roll_heads

        tools = await self._pool.health_context(cluster)
        if await has_images(tools):
            async with self._pool.machine_lock(cluster):
                await roll_heads(tools, report, back=back)

    async def ensure_image(self, cluster: Cluster, report: ReportProgress) -> None:
        from headway.images import build

        await build.ensure_image(cluster.image, report, state_dir=(await self._pool.context(cluster)).state_dir)

    async def nodes_await_rollout(self, cluster: Cluster) -> bool:
        from headway.rollout.slurm_upgrade_rules import nodes_await_rollout

        tools = await self._pool.health_context(cluster)
        return await nodes_await_rollout(cluster, tools.cluster_context)

    async def halt_rollout(self, cluster: Cluster, report: ReportProgress) -> None:
        from headway.rollout.cluster_rollout import halt_rollout

        await halt_rollout(await self._pool.health_context(cluster), report)
