"""Reads from accounting what billing needs."""

from __future__ import annotations

from collections.abc import Sequence

from headway.domain.billing.ledger import CheckpointStats, JobRun, NodeSpan
from headway.domain.cluster import Cluster
from headway.server.cluster_backend.connections import ConnectionPool


class UsageBackend:
    """Implements services.cluster_backend.ClusterUsage."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def usage_runs(self, cluster: Cluster, since: int, until: int) -> tuple[JobRun, ...]:
        from headway.slurm.accounting import sacct_usage

        slurm = await self._pool.slurm(cluster)
        return await sacct_usage.read_runs(slurm.links, slurm.head, since, until)

    async def runs_of_jobs(self, cluster: Cluster, jobs: Sequence[int]) -> tuple[JobRun, ...]:
        from headway.slurm.accounting import sacct_usage

        slurm = await self._pool.slurm(cluster)
        return await sacct_usage.read_runs_of_jobs(slurm.links, slurm.head, jobs)

    async def node_events(self, cluster: Cluster, since: int) -> tuple[NodeSpan, ...]:
        from headway.slurm.accounting import sacct_usage

        slurm = await self._pool.slurm(cluster)
        return await sacct_usage.read_node_events(slurm.links, slurm.head, since)

    async def restart_losses(self, cluster: Cluster) -> dict[int, tuple[tuple[float, float], ...]]:
        return (await self._pool.slurm(cluster)).progress.losses_by_job()

    async def checkpoint_stats(self, cluster: Cluster) -> dict[int, CheckpointStats]:
        return (await self._pool.slurm(cluster)).progress.stalls_by_job()

    async def hold_team_jobs(self, cluster: Cluster, team: str, *, on: bool) -> None:
        from headway.slurm.accounting import team_job_hold

        slurm = await self._pool.slurm(cluster)
        await team_job_hold.hold_team_jobs(slurm.links, slurm.head, team, on=on)
