"""Reads every cluster periodically into its snapshot, and passes each reading to the health loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Protocol

import structlog

from headway.domain.cluster import Cluster
from headway.domain.machines.machine import MachineState
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.services.billing.ledger.machine_meter import MachineMeter
from headway.services.nodes.node_actions import resume_reboots
from headway.services.read_model.live_state import ALL_JOBS
from headway.services.read_model.snapshot import Snapshot
from headway.store import ClusterRow

WATCHED_S = 1.5  # seconds between readings while someone watches the cluster
BUSY_S = 2.0  # seconds while jobs run or wait, or a node is not healthy
POKED_S = 0.3  # minimum seconds after the previous reading, because events come in bursts
MANY = 1000  # from this many jobs on, only jobs with known changes are read on request
FEW = 16  # if more jobs have known changes, they wait for the next full reading
CALM_S = 15.0
EXTRAS_S = 10.0  # seconds between readings of losses for unwatched clusters, and of checks for watched ones
TICK_S = 1.0

log = structlog.get_logger("headway.server.slurm_polling")


class FaultHandler(Protocol):
    """Acts on the faults of a cluster (server.cluster_backend.health_loop)."""

    async def step(
        self, cluster: Cluster, nodes: Iterable[NodeState], jobs: Iterable[JobState]
    ) -> list[tuple[str, str]]:
        """Runs one pass of the health loop. Returns what was done, as (node or job, text)."""
        ...

    async def handle_urgent(self, cluster: Cluster) -> list[tuple[str, str]]:
        """Handles only what can't wait while an operation runs on the cluster. Returns what was done, as (node or
        job, text)."""
        ...


class SnapshotWorker:
    """Keeps the snapshots current. `health` gets every new reading of a cluster that is ready."""

    def __init__(self, state: AppState, health: FaultHandler | None = None) -> None:
        self._state = state
        self._health = health
        self._due: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._extras_due: dict[str, float] = {}
        self._losses_due: dict[str, float] = {}
        self._stale: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._glances: dict[str, asyncio.Task[None]] = {}
        self._meter = MachineMeter()

    async def run(self) -> None:
        """Reads all clusters until cancelled."""
        hub = self._state.live.hub
        loop = asyncio.get_running_loop()
        try:
            while True:
                seen = hub.version("watchers")
                try:
                    rows = await self._state.store.clusters.all()
                except Exception as error:
                    log.error("store", error=str(error))
                    rows = ()
                for row in rows:
                    self._start(row, loop.time())
                await hub.wait_for_change("watchers", seen, POKED_S if self._state.live.refresh_requests else TICK_S)
        finally:
            tasks = [*self._tasks.values(), *self._glances.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def cancel_readings(self) -> None:
        """Cancels the running readings because this server no longer leads."""
        for task in self._tasks.values():
            task.cancel()

    def _start(self, row: ClusterRow, now: float) -> None:
        """Starts a reading of the cluster if it is due and none is running."""
        task = self._tasks.get(row.name)
        due = self._due.get(row.name, 0.0)
        many = len(self._state.live.snapshot(row.name).jobs) >= MANY
        if many:
            self._refresh_changed_jobs(row)
        known = self._state.live.refresh_requests.get(row.name, set())
        poked = ALL_JOBS in known if many else bool(known)
        if poked:
            due = min(due, self._began.get(row.name, 0.0) + POKED_S)
        else:  # a request may have found a change that the last reading missed
            due = min(due, self._began.get(row.name, 0.0) + self._pace(self._state.live.snapshot(row.name)))
        if (task is not None and not task.done()) or now < due:
            return
        self._began[row.name] = now
        known.intersection_update(known - {ALL_JOBS} if many else ())
        if not known:
            self._state.live.refresh_requests.pop(row.name, None)
        self._tasks[row.name] = asyncio.create_task(self._refresh(row, 0.0 if poked else BUSY_S / 2))

    def _refresh_changed_jobs(self, row: ClusterRow) -> None:
        """Reads only the jobs with known changes, in parallel to full readings: reading a long queue takes seconds."""
        task = self._glances.get(row.name)
        if task is not None and not task.done():
            return
        known = self._state.live.refresh_requests.get(row.name, set())
        jobs = known - {ALL_JOBS}
        known -= jobs
        if jobs and not known:
            del self._state.live.refresh_requests[row.name]
        if 0 < len(jobs) <= FEW:
            self._glances[row.name] = asyncio.create_task(self._read_few(row, jobs))

    async def _read_few(self, row: ClusterRow, jobs: set[int]) -> None:
        try:
            await self._state.readings.refresh_jobs(await self._state.clusters.resolved(row), jobs)
        except Exception as error:
            log.info("glance", cluster=row.name, error=str(error))
        await asyncio.sleep(POKED_S)

    async def _refresh(self, row: ClusterRow, max_age_s: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            cluster = await self._state.clusters.resolved(row)
            if row.state == "creating":
                await self._machines_only(cluster)
                self._due[row.name] = loop.time() + BUSY_S
                return
            snapshot = await self._state.readings.refresh(cluster, max_age_s=max_age_s)
            if snapshot.stale != self._stale.get(row.name, ""):
                self._stale[row.name] = snapshot.stale
                log.info("reading", cluster=row.name, old=snapshot.stale or "no more")
            leads = self._state.store.server_locks.leads
            if not snapshot.stale and leads:
                await self._meter.record_machines(self._state, cluster, snapshot.machines)
            if not leads:
                pass
            elif row.state in {"ready", "failed"}:  # a cluster whose apply failed may still run jobs
                await self._act(cluster, snapshot)
            elif row.state == "changing":
                await self._handle_urgent(cluster)
            await self._extras(cluster)
            await self._state.readings.publish_incident_changes(row.name)
            self._due[row.name] = loop.time() + self._pace(snapshot)
        except HeadwayError as error:
            self._state.live.mark_stale(row.name, error.message)
            self._due[row.name] = loop.time() + BUSY_S
        except Exception as error:
            log.error("poll", cluster=row.name, exc_info=error)
            self._due[row.name] = loop.time() + CALM_S

    def _pace(self, snapshot: Snapshot) -> float:
        """Returns the seconds from the start of a reading to the next one, or from its end if it takes longer."""
        if self._state.live.is_watched(snapshot.cluster):
            return WATCHED_S
        jobs = any(job.state in RUNNING | WAITING for job in snapshot.jobs)
        gone = any(machine.state is not MachineState.RUNNING for machine in snapshot.machines)
        ill = gone or bool(snapshot.stale) or any(not node.usable for node in snapshot.nodes)
        return BUSY_S if jobs or ill else CALM_S

    async def _machines_only(self, cluster: Cluster) -> None:
        """Reads only the machines: while a cluster is created Slurm does not run yet, and machines appear one by one."""
        machines = await self._state.backend.lifecycle.machines(cluster)
        if self._state.store.server_locks.leads:
            await self._meter.record_machines(self._state, cluster, machines)
        known = self._state.live.snapshot(cluster.name)
        if machines != known.machines:
            self._state.live.store_snapshot(replace(known, machines=machines))

    async def _act(self, cluster: Cluster, snapshot: Snapshot) -> None:
        if self._health is None or snapshot.stale:
            return
        await self._note(cluster, self._health.step(cluster, snapshot.nodes, snapshot.jobs))
        with contextlib.suppress(HeadwayError):  # retried with the next reading
            await resume_reboots(self._state, cluster)

    async def _handle_urgent(self, cluster: Cluster) -> None:
        if self._health is not None:
            await self._note(cluster, self._health.handle_urgent(cluster))

    async def _note(self, cluster: Cluster, work: Awaitable[list[tuple[str, str]]]) -> None:
        try:
            for where, text in await work:
                log.info("watch", cluster=cluster.name, where=where, did=text)
                self._state.live.add_recent_event(cluster.name, text, where=where)
        except HeadwayError as error:
            log.warning("watch", cluster=cluster.name, error=error.message)

    async def _extras(self, cluster: Cluster) -> None:
        """Reads data that needs files and units on the machines: losses while jobs run or have just ended, checks
        for people who watch the cluster."""
        from headway.jobs.view.progress import jobs_to_read

        state, now = self._state, asyncio.get_running_loop().time()
        snapshot = state.live.snapshot(cluster.name)
        watched = self._state.live.is_watched(cluster.name)
        some = jobs_to_read(snapshot.jobs, state.clock())
        if some and (watched or now >= self._losses_due.get(cluster.name, 0.0)):
            self._losses_due[cluster.name] = now + EXTRAS_S
            with contextlib.suppress(HeadwayError):
                progress = await state.backend.jobs.progress(cluster, some)
                merged = {**snapshot.progress, **progress}
                if merged != snapshot.progress:
                    state.live.store_snapshot(replace(state.live.snapshot(cluster.name), progress=merged))
        if (watched or not snapshot.checks) and now >= self._extras_due.get(cluster.name, 0.0):
            self._extras_due[cluster.name] = now + EXTRAS_S
            checks = await state.readings.checks(cluster)
            current = state.live.snapshot(cluster.name)
            if checks != current.checks:
                state.live.store_snapshot(replace(current, checks=checks))
