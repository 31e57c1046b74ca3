"""Resolves, plans, applies and removes clusters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.operation_progress import ReportProgress
from headway.domain.readiness import ReadinessCheck
from headway.schemas.clusters import Document
from headway.server.cluster_backend.connections import ConnectionPool
from headway.server.cluster_backend.resolve_process import is_large, resolve_in_process
from headway.server.operations.apply_wait import ApplyWait
from headway.services.cluster_backend import ResolvedCluster, WaitForJobs

if TYPE_CHECKING:  # cluster code is loaded with the first cluster
    from headway.cluster.slurm_export.export import SlurmExport


class LifecycleBackend:
    """Implements services.cluster_backend.ClusterLifecycle."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def resolve(self, document: Document) -> ResolvedCluster:
        if is_large(document):
            return await resolve_in_process(document)
        return await asyncio.to_thread(_resolve, document)

    async def plan(self, cluster: Cluster) -> ChangeSet:
        from headway.cluster.apply import plan_changes

        async with self._pool.context_for_plan(cluster) as context:
            return await plan_changes(cluster, context)

    async def apply(
        self,
        cluster: Cluster,
        report: ReportProgress,
        deadline: Deadline | None = None,
        waiting: WaitForJobs | None = None,
        *,
        restarts: bool = True,
    ) -> bool:
        from headway.cluster.apply import apply_cluster
        from headway.cluster.scaling.scale_in import YieldedToOperation
        from headway.environments.image_environment import provide_image_environment

        async with self._pool.machine_lock(cluster) as opened:
            try:
                await apply_cluster(
                    cluster, opened.context, report, deadline, ApplyWait(opened, report, cluster, waiting),
                    restarts=restarts,
                )  # fmt: skip
            except YieldedToOperation:
                return True
            opened.cluster = cluster
        await provide_image_environment(cluster, opened.context, report)
        return False

    async def take_down(self, cluster: Cluster, report: ReportProgress, delete_data: bool) -> tuple[str, ...]:
        from headway.cluster.teardown import take_down

        async with self._pool.machine_lock(cluster) as opened:
            return await take_down(cluster, opened.context, report, delete_data)

    async def replace_machine(self, cluster: Cluster, report: ReportProgress, node: str, since: float | None) -> None:
        from headway.cluster.scaling.provision_slot import provision_machine
        from headway.health.incidents.machine_gone import machine_is_surplus

        tools = await self._pool.health_context(cluster)
        async with self._pool.machine_lock(cluster) as opened:
            machine = (await tools.machines()).get(node)
            made = machine is not None and since is not None and machine.started_at > since
            if made or (machine is not None and await tools.jobs_on(node)):
                await report(node, "keeps its machine, which has jobs or was created after this request", done=True)
                return
            if node not in cluster.group_of or await machine_is_surplus(tools, node):
                await report(node, "gets no new machine: the cluster file has no place for it now", done=True)
                return
            await provision_machine(cluster, opened.context, node, report, why="the previous machine failed")

    async def machines(self, cluster: Cluster) -> tuple[Machine, ...]:
        return await (await self._pool.opened(cluster)).machines(cluster.name)

    async def readiness_checks(self, cluster: Cluster) -> tuple[ReadinessCheck, ...]:
        from headway.cluster.readiness import readiness_checks

        return await readiness_checks(cluster, await self._pool.context(cluster))

    async def slurm_export(self, cluster: Cluster) -> SlurmExport:
        from headway.cluster.slurm_export.export import export_slurm

        return await export_slurm(cluster, await self._pool.context(cluster))


def _resolve(document: Document) -> ResolvedCluster:
    from headway.catalog.plans import load_catalogue
    from headway.clusterfile.load import resolve_cluster_file

    catalogue = load_catalogue(document.catalogue)
    return ResolvedCluster(*resolve_cluster_file(document.spec, catalogue, owner=document.owner))
