"""Submits and controls jobs, and reads their progress and logs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.jobs import JobStacksOut, LogFoundOut, LogPartOut, ProgressOut, RankStackOut
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.server.cluster_backend.connections import ConnectionPool
from headway.server.cluster_backend.slurm_state import SlurmStateBackend
from headway.services.jobs.job_to_schema import effective_time_out

if TYPE_CHECKING:
    from headway.jobs.metrics.reader import MetricsAsk, MetricsPart
    from headway.jobs.submission.submit import JobFiles
    from headway.jobs.view.progress import JobProgress


class JobsBackend:
    """Implements services.cluster_backend.ClusterJobs."""

    def __init__(self, pool: ConnectionPool, slurm: SlurmStateBackend) -> None:
        self._pool = pool
        self._slurm_state = slurm

    async def submit(
        self, cluster: Cluster, request: SubmitIn, user: str, stage: JobFiles | None = None, *, tag: str = ""
    ) -> SubmitOut:
        from headway.jobs.explain.sbatch_errors import with_sbatch_hints
        from headway.jobs.submission.submit import run_sbatch

        opened = await self._pool.opened(cluster)
        # A live helper process proves that the head is still the same machine, so the provider is not queried.
        known = opened.slurm
        warm = known is not None and cluster.controllers == 1 and known.links.has_idle_helper(user)
        slurm = known if known is not None and warm else await self._pool.slurm(cluster)
        with with_sbatch_hints(cluster, user):
            return await run_sbatch(slurm.links, slurm.head, request, user, stage, tag)

    async def store_bundle(self, cluster: Cluster, user: str, root: str, digest: str, archive: bytes) -> bool:
        from headway.jobs.submission.submit import store_bundle

        slurm = await self._pool.slurm(cluster)
        return await store_bundle(slurm.links, slurm.head, user, root, digest, archive)

    async def cancel(self, cluster: Cluster, job: str, user: str, *, as_operator: bool) -> None:
        from headway.jobs.submission.submit import cancel_jobs

        slurm = await self._pool.slurm(cluster)
        await cancel_jobs(slurm.links, slurm.head, user, [job], as_operator=as_operator)

    async def control(self, cluster: Cluster, job: str, verb: str, user: str, *, as_operator: bool) -> None:
        from headway.jobs.submission.submit import control_job

        slurm = await self._pool.slurm(cluster)
        await control_job(slurm.links, slurm.head, user, verb, job, as_operator=as_operator)

    async def progress(self, cluster: Cluster, jobs: tuple[JobState, ...]) -> dict[int, ProgressOut]:
        progress = (await self._pool.slurm(cluster)).progress
        await progress.read_jobs(jobs)
        return {
            job.id: _progress_out(known, progress.torch_warning(job.id))
            for job in jobs
            if (known := progress.progress_of(job.id))
        }

    async def progress_from_files(self, cluster: Cluster, job: JobState) -> ProgressOut | None:
        from headway.jobs.view.progress import ProgressReader

        slurm = await self._pool.slurm(cluster)
        reader = ProgressReader(slurm.links, slurm.head, log_metrics=True)
        await reader.read_jobs((job,))
        known = reader.progress_of(job.id)
        return _progress_out(known, reader.torch_warning(job.id)) if known else None

    async def metric_parts(self, cluster: Cluster, asked: Sequence[MetricsAsk]) -> Mapping[int, MetricsPart]:
        from headway.jobs.metrics.reader import read_parts

        slurm = await self._pool.slurm(cluster)
        return await read_parts(slurm.links, slurm.head, cluster, asked)

    async def step_result_files(self, cluster: Cluster, user: str, paths: Sequence[str]) -> Mapping[str, bytes]:
        from headway.jobs.pipelines.result_files import read_result_files

        slurm = await self._pool.slurm(cluster)
        return await read_result_files(slurm.links, slurm.head, user, paths)

    async def rank_stacks(self, cluster: Cluster, job: JobState) -> JobStacksOut:
        from headway.health.jobs.rank_stacks import collect_stacks
        from headway.health.jobs.stall_stragglers import find_stragglers

        context = (await self._pool.opened(cluster)).context
        found = await collect_stacks(context, await context.machines(cluster.name), job)
        stragglers = find_stragglers(found.stacks)
        return JobStacksOut(
            stacks=[RankStackOut(rank=one.rank, node=one.node, frames=list(one.frames)) for one in found.stacks],
            verdict=stragglers.text() if stragglers else "",
            nccl=dict(found.nccl),
            errors=dict(found.errors),
        )

    async def log_part(
        self, cluster: Cluster, job: JobState, *, before: int | None, lines: int, err: bool
    ) -> LogPartOut:
        from headway.jobs.logs.log_part import read_log_part

        slurm = await self._pool.slurm(cluster)
        return await read_log_part(slurm.links, slurm.head, job, before=before, lines=lines, err=err)

    async def search_log(self, cluster: Cluster, job: JobState, text: str, *, err: bool) -> LogFoundOut:
        from headway.jobs.logs.log_part import search_log

        slurm = await self._pool.slurm(cluster)
        return await search_log(slurm.links, slurm.head, job, text, err=err)

    async def follow_log(
        self, cluster: Cluster, job: JobState, *, follow: bool, err: bool, start: int = 0
    ) -> AsyncIterator[bytes]:
        from headway.jobs.logs.follow import follow_log

        async def now() -> JobState:
            return await self._slurm_state.job(cluster, job.id)

        slurm = await self._pool.slurm(cluster)
        async with contextlib.aclosing(
            follow_log(slurm.links, slurm.head, now, follow=follow, err=err, start=start)
        ) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    async def follow_array_logs(
        self, cluster: Cluster, job_id: int, *, follow: bool, err: bool
    ) -> AsyncIterator[bytes]:
        from headway.jobs.logs.follow_array import follow_array_logs
        from headway.jobs.view.array_tasks import tasks_of

        before = {job.id: job for job in tasks_of(await self._slurm_state.history(cluster), job_id)}

        async def now() -> list[JobState]:
            return list((before | {job.id: job for job in await self._slurm_state.tasks(cluster, job_id)}).values())

        slurm = await self._pool.slurm(cluster)
        async with contextlib.aclosing(
            follow_array_logs(slurm.links, slurm.head, now, follow=follow, err=err)
        ) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece


def _progress_out(known: JobProgress, torch_warning: str) -> ProgressOut:
    return ProgressOut(
        warning=torch_warning,
        step=known.step,
        loss=None if math.isnan(known.loss) else known.loss,
        tokens_per_s=known.tokens_per_s,
        more=known.more,
        effective_time=effective_time_out(known.effective_time),
        series=known.series,
        checkpoints_at=list(known.checkpoints_at),
        log_metrics={name: curve.points for name, curve in (known.log_metrics or {}).items()},
    )
