"""Copies the metrics that trainings report from the clusters to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headway.domain.slurm.job_states import ENDED
from headway.server.workers.each_cluster import check_each_cluster
from headway.services.app_state import AppState
from headway.services.jobs.training_metrics import collect_metrics
from headway.services.jobs.trainings.stored_trainings import changed_states
from headway.store import ClusterRow

EVERY_S = 10.0
_WORKS = frozenset({"ready", "failed", "changing"})


class TrainingMetrics:
    """Follows the files of the jobs that report progress, and reads those of ended jobs to their end."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause
        self._complete: dict[
            str, set[tuple[int, int]]
        ] = {}  # cluster -> (job, end) of jobs that were read to their end

    async def run(self) -> None:
        """Copies until cancelled."""
        while True:
            await self.collect_all()
            await self._pause(EVERY_S)

    async def collect_all(self) -> None:
        """Copies what is new on all clusters."""
        await check_each_cluster(self._state, "metrics of trainings", self._collect)

    async def _collect(self, row: ClusterRow) -> None:
        from headway.jobs.view.progress import jobs_to_read

        snapshot = self._state.live.snapshot(row.name)
        if row.state not in _WORKS or snapshot.stale:
            return
        jobs = jobs_to_read(snapshot.jobs, self._state.clock())
        ended = {(job.id, job.end_time) for job in jobs if job.state in ENDED}
        complete = self._complete.get(row.name, set()) & ended
        due = [job for job in jobs if job.id in snapshot.progress or (job.id, job.end_time) in ended - complete]
        due = [job for job in due if (job.id, job.end_time) not in complete]
        cluster = await self._state.clusters.resolved(row)
        known = {job.id for job in due}
        due += [job for job in await changed_states(self._state, cluster, snapshot.jobs) if job.id not in known]
        if due:
            more = await collect_metrics(self._state, cluster, due)
            complete |= {(job.id, job.end_time) for job in due if job.id not in more} & ended
        self._complete[row.name] = complete
