"""Repeats on the MLflow server what jobs log, while it answers. While it does not, the journals wait on the clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headway.server.workers.each_cluster import check_each_cluster
from headway.services.app_state import AppState
from headway.services.mlflow.journals import has_ended, repeat_journals
from headway.store import ClusterRow

EVERY_S = 5.0
AT_ONCE = 100  # jobs of one round; further ones are in the next round
REVIEW_AGE_S = 7 * 86400.0  # how long after its end the journal of a job is still looked for
_WORKS = frozenset({"ready", "failed", "changing"})


class MlflowJournals:
    """Follows the journals of the running jobs, and reads those of ended jobs to their end."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause
        self._reviewed: set[str] = set()  # clusters whose past jobs were looked through
        self._waiting: dict[str, dict[int, int]] = {}  # cluster -> past job -> its end
        self._complete: dict[str, set[tuple[int, int]]] = {}  # cluster -> (job, end) of journals read to their end

    async def run(self) -> None:
        """Repeats until cancelled."""
        while True:
            await self.collect_all()
            await self._pause(EVERY_S)

    async def collect_all(self) -> None:
        """Repeats what is new on all clusters."""
        if self._state.mlflow.http is None:
            self._reviewed.clear()  # jobs may end before it answers again
            return
        await check_each_cluster(self._state, "journals of MLflow", self._collect)

    async def _collect(self, row: ClusterRow) -> None:
        from headway.jobs.view.progress import jobs_to_read

        state, snapshot = self._state, self._state.live.snapshot(row.name)
        if row.state not in _WORKS or snapshot.stale:
            return
        cluster = await state.clusters.resolved(row)
        if not cluster.mlflow:
            return
        now = state.clock()
        due = {job.id: job for job in jobs_to_read(snapshot.jobs, now)}
        if row.name not in self._reviewed:
            past = await state.readings.history(cluster)
            due |= {job.id: job for job in past if has_ended(job) and now - job.end_time <= REVIEW_AGE_S}
            self._reviewed.add(row.name)
            self._complete.pop(row.name, None)
        complete = self._complete.setdefault(row.name, set())
        left = [job for job in due.values() if (job.id, job.end_time) not in complete or not has_ended(job)]
        for begin in range(0, len(left), AT_ONCE):
            some = left[begin : begin + AT_ONCE]
            done = await repeat_journals(state, cluster, some)
            complete |= {(job.id, job.end_time) for job in some if job.id in done.complete and has_ended(job)}
