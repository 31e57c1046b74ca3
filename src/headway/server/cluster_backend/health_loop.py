"""Runs the health loop of each cluster and acts on the events of node agents."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING

from headway.domain.access.job_secret import SecretDelivery
from headway.domain.cluster import Cluster
from headway.domain.incident import FaultAction
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.errors import HeadwayError
from headway.server.cluster_backend.connections import ClusterConnections, ConnectionPool
from headway.server.cluster_backend.slurm_state import SlurmStateBackend

if TYPE_CHECKING:
    from headway.domain.incident import Symptom
    from headway.health.detection.agent_events import Heartbeats, OfflineAction
    from headway.health.detection.dead_nodes import Messages


class HealthLoop:
    """Implements workers.slurm_polling.FaultHandler and workers.event_listener.EventSource. Only one caller at a time
    acts on the faults of a cluster."""

    def __init__(self, pool: ConnectionPool, slurm: SlurmStateBackend) -> None:
        self._pool = pool
        self._slurm_state = slurm

    async def step(
        self, cluster: Cluster, nodes: Iterable[NodeState], jobs: Iterable[JobState]
    ) -> list[tuple[str, str]]:
        """Runs one pass of the cluster's health loop, which acts on faults. Returns what was done, as (node or job, text)."""
        from headway.health.context import fault_text
        from headway.health.jobs.stall_watchdog import StallWatchdog
        from headway.health.slurm_reconciler import SlurmReconciler

        opened = await self._pool.opened(cluster)
        opened.cluster = cluster
        engine = opened.engine_for(cluster)
        if opened.reconciler is None:
            opened.reconciler = SlurmReconciler(cluster, opened.context, engine, StallWatchdog(cluster, opened.context))
        opened.reconciler.cluster = opened.reconciler.stall_watchdog.cluster = cluster
        opened.jobs = tuple(jobs)
        async with self._pool.fault_lock(cluster, opened):
            try:
                messages = await engine.handle_reclaim_notices() + await engine.resume_open()
                engine.last_faults.pop(0, None)
            except HeadwayError as error:  # a failed reclaim must not stop the handling of dead nodes
                messages = engine.report_once(0, cluster.name, fault_text(error))
            messages += await opened.reconciler.reconcile(nodes, opened.jobs)
            await self._follow(cluster, opened)
        return messages + await self._wake(cluster, opened)

    async def handle_urgent(self, cluster: Cluster) -> list[tuple[str, str]]:
        """Handles machines that the provider reclaims. This also runs during an operation, because the provider takes
        such a machine within minutes."""
        opened = await self._pool.opened(cluster)
        async with self._pool.fault_lock(cluster, opened):
            engine = opened.engine_for(cluster)
            return await engine.handle_reclaim_notices() + await engine.resume_open(only=FaultAction.RECLAIM)

    async def listen(
        self, cluster: Cluster, is_idle: Callable[[], bool], on_jobs: Callable[[tuple[int, ...], bool], None]
    ) -> AsyncIterator[Messages]:
        """Acts on events from the node agents as they arrive and yields the actions as (node or job, text). Ends or
        raises when the connection to the head is lost.

        `is_idle` returns whether no operation is running (an operation may restart machines itself). `on_jobs` is called
        with the ids of jobs that begin or end on a node (True), and of jobs that the controller's log names (False)."""
        from headway.health.detection.agent_events import JobEvents, PowerRequest, stream_events

        slurm, opened = await self._pool.slurm(cluster), await self._pool.opened(cluster)
        async with contextlib.aclosing(stream_events(slurm.links, slurm.head)) as events:  # type: ignore[type-var]
            before: Messages = []
            async for news in events:
                if isinstance(news, SecretDelivery):
                    await self._pool.store.job_secrets.record_delivery(cluster.name, news)
                    continue
                if isinstance(news, JobEvents):
                    on_jobs(news.jobs, news.certain)
                    continue
                newest = opened.cluster or cluster
                if isinstance(news, PowerRequest):
                    if is_idle():
                        yield await self._wake(newest, opened, at_once=True)
                    continue
                messages = await self._act(newest, opened, news, is_idle())
                if messages and messages != before:  # the report that many nodes are silent is not repeated
                    yield messages
                    yield await self._settle(newest)
                before = messages or before

    async def _act(
        self, cluster: Cluster, opened: ClusterConnections, news: Symptom | Heartbeats | OfflineAction, idle: bool
    ) -> Messages:
        from headway.domain.incident import Symptom
        from headway.health.detection.agent_events import Heartbeats

        engine = opened.engine_for(cluster)
        if isinstance(news, Heartbeats):
            engine.silent_s = news.silent_s
            if not (idle and (news.silent_s or engine.tasks.has_finished)):
                return []
        async with self._pool.fault_lock(cluster, opened):
            if isinstance(news, Symptom):
                return await engine.handle_symptom(news, opened.jobs)
            if isinstance(news, Heartbeats):
                return await engine.handle_heartbeats(news, time.time()) + (
                    await engine.resume_open() if engine.tasks.has_finished else []
                )
            return await engine.handle_offline_action(news)

    async def _settle(self, cluster: Cluster) -> Messages:
        """Runs the health loop at once after a node was drained, so that the spare takes over without waiting for
        the next pass."""
        reading = await self._slurm_state.read(cluster)
        return await self.step(cluster, reading.nodes, reading.jobs)

    async def _wake(
        self, cluster: Cluster, opened: ClusterConnections, *, at_once: bool = False
    ) -> list[tuple[str, str]]:
        """Creates and releases machines as Slurm requests, in groups with autoscaling. Does nothing while another
        task creates machines."""
        from headway.autoscale.autoscaler import Autoscaler

        if opened.machine_lock.locked():
            return []
        async with opened.machine_lock:
            if opened.autoscaler is None:
                opened.autoscaler = Autoscaler(cluster, opened.context)
            opened.autoscaler.cluster, opened.autoscaler.jobs = cluster, opened.jobs
            return await opened.autoscaler.scale(at_once=at_once)

    async def _follow(self, cluster: Cluster, opened: ClusterConnections) -> None:
        """Records when jobs that a repair requeued run again, and when they report progress again."""
        from headway.health.incidents.recovery_tracking import track_recovery
        from headway.jobs.view.progress import jobs_to_read

        tools = opened.engine_for(cluster).context
        if not await track_recovery(tools, opened.jobs, {}):
            return
        some = jobs_to_read(opened.jobs, time.time())
        with contextlib.suppress(HeadwayError):
            progress = (await self._pool.slurm(cluster)).progress
            await progress.read_jobs(some)
            known = {job.id: progress.progress_of(job.id) for job in some}
            await track_recovery(
                tools,
                opened.jobs,
                {number: known_progress.at for number, known_progress in known.items() if known_progress is not None},
            )
