"""Repeats on the MLflow server what jobs log, while it answers. While it does not, the journals wait on the clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError
from headway.server.workers.each_cluster import check_each_cluster
from headway.services.app_state import AppState
from headway.services.mlflow.journals import has_ended, repeat_journals
from headway.services.mlflow.questions import answer_questions
from headway.store import ClusterRow

EVERY_S = 5.0
AT_ONCE = 100  # jobs of one round; further ones are in the next round
REVIEW_AGE_S = 7 * 86400.0  # how long after its end the journal of a job is still looked for
log = structlog.get_logger("headway.server.mlflow")
_WORKS = frozenset({"ready", "failed", "changing"})


class MlflowJournals:
    """Follows the journals of the running jobs, and reads those of ended jobs to their end."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause
        self._reviewed: set[str] = set()  # clusters whose past jobs were looked through
        self._waiting: dict[str, dict[int, int]] = {}  # cluster -> past job -> its end
        self._answering: dict[tuple[str, int, str], asyncio.Task[None]] = {}  # by cluster, job and node
        self._complete: dict[str, set[tuple[int, int]]] = {}  # cluster -> (job, end) of journals read to their end

    async def run(self) -> None:
        """Repeats until cancelled."""
        try:
            while True:
                await self.collect_all()
                await self._pause(EVERY_S)
        finally:
            await self.close()

    async def close(self) -> None:
        """Ends the answering of jobs' requests."""
        tasks = list(self._answering.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
        failed: list[Exception] = []
        for begin in range(0, len(left), AT_ONCE):
            some = left[begin : begin + AT_ONCE]
            done = await repeat_journals(state, cluster, some)
            complete |= {(job.id, job.end_time) for job in some if job.id in done.complete and has_ended(job)}
            failed += done.failed.values()
            for job in some:
                for node in [node for number, node in done.asks if number == job.id and not has_ended(job)]:
                    self._answer(cluster, job, node)
        if failed:
            raise failed[0]

    def _answer(self, cluster: Cluster, job: JobState, node: str) -> None:
        """Begins to answer the requests of a job on this node, unless it does already."""
        key = (cluster.name, job.id, node)
        if key in self._answering:
            return
        task = self._answering[key] = asyncio.create_task(self._answer_all(cluster, job, node))
        task.add_done_callback(lambda _: self._answering.pop(key, None))

    async def _answer_all(self, cluster: Cluster, job: JobState, node: str) -> None:
        try:
            await answer_questions(self._state, cluster, job, node)
        except HeadwayError as error:
            log.info("requests of a job to MLflow end", cluster=cluster.name, job=job.id, why=error.message)
        except Exception as error:
            log.error("requests of a job to MLflow", cluster=cluster.name, job=job.id, exc_info=error)
