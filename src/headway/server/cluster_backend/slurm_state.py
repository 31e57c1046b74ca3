"""Reads the state of Slurm over the connection to the head."""

from __future__ import annotations

from datetime import datetime

from headway.domain.cluster import Cluster
from headway.domain.slurm.accounts import AccountShare
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import NotFound
from headway.server.cluster_backend.connections import ConnectionPool
from headway.services.cluster_backend import SlurmReading


class SlurmStateBackend:
    """Implements services.cluster_backend.ClusterSlurmState."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def read(self, cluster: Cluster) -> SlurmReading:
        return await (await self._pool.slurm(cluster)).poll.read()

    async def shares(self, cluster: Cluster) -> tuple[AccountShare, ...]:
        from headway.slurm.accounting import sshare

        slurm = await self._pool.slurm(cluster)
        return await sshare.read_shares(slurm.links, slurm.head)

    async def job(self, cluster: Cluster, job_id: int) -> JobState:
        return await (await self._pool.slurm(cluster)).reader.job(job_id)

    async def jobs_by_id(self, cluster: Cluster, numbers: tuple[int, ...]) -> tuple[JobState, ...]:
        return await (await self._pool.slurm(cluster)).reader.jobs_by_id(numbers)

    async def history(self, cluster: Cluster) -> tuple[JobState, ...]:
        return await (await self._pool.slurm(cluster)).history.read()

    async def task(self, cluster: Cluster, job_id: int, task: str) -> JobState:
        from headway.jobs.view.array_tasks import tasks_of
        from headway.slurm.accounting import sacct_jobs

        found = tasks_of(await self.tasks(cluster, job_id), job_id, task)
        if not found:
            slurm = await self._pool.slurm(cluster)
            ended = await sacct_jobs.read_array_tasks(slurm.links, slurm.head, job_id, cluster.slurm_version)
            found = tasks_of(ended, job_id, task)
        if found:
            return found[0]
        raise NotFound(
            f"job {job_id} on {cluster.name} has no task {task}", hint=f"headway job {cluster.name} {job_id}"
        )

    async def tasks(self, cluster: Cluster, job_id: int) -> tuple[JobState, ...]:
        """Returns the tasks of an array job that the controller still knows."""
        return await (await self._pool.slurm(cluster)).reader.array_tasks(job_id)

    async def array_states(self, cluster: Cluster, job_id: int) -> dict[str, str]:
        from headway.slurm.accounting import sacct_jobs

        slurm = await self._pool.slurm(cluster)
        return await sacct_jobs.read_array_states(slurm.links, slurm.head, job_id)

    async def job_runs(self, cluster: Cluster, job_id: int) -> tuple[JobState, ...]:
        from headway.slurm.accounting import sacct_jobs

        slurm = await self._pool.slurm(cluster)
        return await sacct_jobs.read_job_runs(slurm.links, slurm.head, job_id, cluster.slurm_version)

    async def head_local_time(self, cluster: Cluster, unix_s: int) -> datetime:
        from headway.slurm.planned_reservations import head_local_time

        slurm = await self._pool.slurm(cluster)
        return await head_local_time(slurm.links, slurm.head, unix_s)
