"""Reads the state of Slurm and of the machines of a cluster for viewers, once for all their requests."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from weakref import WeakValueDictionary

from headway.domain.cluster import Cluster
from headway.domain.readiness import ReadinessCheck
from headway.domain.slurm.accounts import AccountShare
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import MOST_SIBLINGS, JobState
from headway.domain.storage.quotas import ObservedQuota
from headway.domain.storage.volume_space import VolumeSpace
from headway.errors import HeadwayError
from headway.jobs.explain.held_slots import is_held
from headway.jobs.view.array_tasks import tasks_of
from headway.schemas.jobs import ProgressOut
from headway.services.cluster_backend import ClusterBackend
from headway.services.read_model.live_state import LiveState
from headway.services.read_model.snapshot import Snapshot
from headway.services.shared_cache import SharedCache
from headway.store import Store

READ_TIMEOUT_S = 10.0
_FRESH_S = 0.4  # seconds; a reading younger than this is not repeated
SNAPSHOT_AGE_S = 2.0  # seconds; viewers get no older reading than this, if Slurm answers quickly
# Seconds that a viewer waits for a newer reading while jobs run or wait; the poller reads continuously then
SNAPSHOT_WAIT_S = 0.03
SHARED_AGE_S = 5.0
QUOTAS_AGE_S = 60.0
PROGRESS_AGE_S = 60.0  # seconds; nothing more is written by then


class ClusterReadings:
    """Reads clusters into their snapshots and answers viewers from shared readings."""

    def __init__(
        self, store: Store, backend: ClusterBackend, live: LiveState, cache: SharedCache, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._backend = backend
        self._live = live
        self._cache = cache
        self._clock = clock
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._looks: dict[str, asyncio.Task[Snapshot]] = {}
        self._glanced: dict[str, dict[int, tuple[float, JobState]]] = {}
        # Start of the last complete reading, by time.monotonic()
        self._read_from: dict[str, float] = {}

    async def refresh(self, cluster: Cluster, *, max_age_s: float = _FRESH_S) -> Snapshot:
        """Returns the cluster's snapshot, and reads it from Slurm first if it is older than `max_age_s`. If the cluster
        does not answer, returns the last one, marked as stale."""
        async with self._reading.setdefault(cluster.name, asyncio.Lock()):
            known = self._live.snapshot(cluster.name)
            if known.as_of is not None and not known.stale and self._clock() - known.as_of < max_age_s:
                return known
            began = time.monotonic()
            try:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    machines, reading = await asyncio.gather(
                        self._backend.lifecycle.machines(cluster), self._backend.slurm.read(cluster)
                    )
            except (HeadwayError, TimeoutError, OSError) as error:
                # A timeout says little, so a more precise reason that is already known is kept.
                why = known.stale if isinstance(error, TimeoutError) and known.stale else _why(error, cluster.head)
                self._live.mark_stale(cluster.name, why)
            else:
                known = self._live.snapshot(cluster.name)
                began = min(began, reading.began)
                self._read_from[cluster.name] = began
                seen = self._glanced.get(cluster.name, {})
                newer = self._glanced[cluster.name] = {number: one for number, one in seen.items() if one[0] > began}
                jobs, rows = _with(reading.jobs, reading.rows, [job for _, job in newer.values()])
                there = {job.id for job in jobs} if known.progress else ()
                self._live.store_snapshot(
                    Snapshot(
                        cluster.name,
                        tuple(node for node in reading.nodes if not node.absent),
                        jobs,
                        machines,
                        known.checks,
                        {number: one for number, one in known.progress.items() if number in there},
                        as_of=self._clock(),
                        job_rows=rows,
                        reservations=reading.reservations,
                        held_slots=tuple(node for node in reading.nodes if node.absent and is_held(node)),
                        job_orders=known.pop_recent_orders(self._clock()),
                    )
                )
            return self._live.snapshot(cluster.name)

    async def refresh_jobs(self, cluster: Cluster, numbers: Iterable[int]) -> None:
        """Updates only these jobs, independently of complete readings. Raises the errors of the request to Slurm."""
        at, requested = time.monotonic(), set(numbers)
        tasks = Counter(job.array_job_id for job in self._live.snapshot(cluster.name).jobs)
        many = {number for number in requested if number and tasks[number] > MOST_SIBLINGS}
        if many:  # an array's number would return all its tasks
            self._live.request_refresh(cluster.name)
        async with asyncio.timeout(READ_TIMEOUT_S):
            found = await self._backend.slurm.jobs_by_id(cluster, tuple(sorted(requested - many)))
        if self._read_from.get(cluster.name, 0.0) > at:  # a newer reading is stored already
            return
        known = self._live.snapshot(cluster.name)
        new = []
        for job in found:
            before = known.by_id.get(job.id)
            if before is not None and before.start_time == job.start_time:  # the GPU indexes come from another request
                job = replace(job, gpu_indexes=before.gpu_indexes)
            if before != job:
                new.append(job)
        self._glanced.setdefault(cluster.name, {}).update((job.id, (at, job)) for job in new)
        if new:
            jobs, rows = _with(known.jobs, known.job_rows, new)
            self._live.store_snapshot(replace(known, jobs=jobs, job_rows=rows))

    async def snapshot(self, cluster: Cluster) -> Snapshot:
        """Returns the snapshot for viewers. All viewers share the readings, also those of the poller.

        Reading ten thousand jobs takes seconds. Viewers do not wait for that: they get the last reading, which says
        how old it is. While no job runs or waits, the poller reads seldom, and a reading is quick, so it is waited
        for."""
        known = self._live.snapshot(cluster.name)
        if known.as_of is not None and (known.stale or self._clock() - known.as_of < SNAPSHOT_AGE_S):
            return known
        look = self._looks.get(cluster.name)
        if look is None or look.done():
            look = self._looks[cluster.name] = asyncio.create_task(self.refresh(cluster, max_age_s=SNAPSHOT_AGE_S))
        await asyncio.wait({look}, timeout=SNAPSHOT_WAIT_S if any(known.counts) else None)
        return look.result() if look.done() else known

    async def history(self, cluster: Cluster) -> tuple[JobState, ...]:
        """Returns the jobs of the last days from accounting, shared by all requests for SHARED_AGE_S."""
        return await self._cache.get(
            f"{cluster.name}/history", SHARED_AGE_S, lambda: self._backend.slurm.history(cluster)
        )

    async def volume_space(self, cluster: Cluster, max_age_s: float) -> tuple[VolumeSpace, ...]:
        """Returns how full the cluster's volumes are, at most `max_age_s` old."""
        return await self._cache.get(
            f"{cluster.name}/volume_space", max_age_s, lambda: self._backend.storage.volume_space(cluster)
        )

    async def quotas(self, cluster: Cluster) -> Mapping[str, ObservedQuota]:
        """Returns the state and use of users' quotas by volume, at most QUOTAS_AGE_S old."""
        return await self._cache.get(
            f"{cluster.name}/quotas", QUOTAS_AGE_S, lambda: self._backend.storage.quotas(cluster)
        )

    async def shares(self, cluster: Cluster) -> tuple[AccountShare, ...]:
        """Returns what each team has used, shared by all requests for SHARED_AGE_S."""
        return await self._cache.get(
            f"{cluster.name}/shares", SHARED_AGE_S, lambda: self._backend.slurm.shares(cluster)
        )

    async def job(self, cluster: Cluster, job_id: int) -> JobState:
        """Returns one job for a viewer: as last read, otherwise Slurm is asked (at most once in SNAPSHOT_AGE_S for all
        requests). Raises NotFound."""
        known = (await self.snapshot(cluster)).by_id.get(job_id)
        if known is not None:
            return known
        return await self._cache.get(
            f"{cluster.name}/job/{job_id}", SNAPSHOT_AGE_S, lambda: self._backend.slurm.job(cluster, job_id)
        )

    async def task(self, cluster: Cluster, array: int, task: str) -> JobState:
        """Returns one task of an array, as `job` does. `task` is its array index. Raises NotFound."""
        known = tasks_of((await self.snapshot(cluster)).jobs, array, task)
        if known:
            return known[0]
        key = f"{cluster.name}/job/{array}_{task}"
        return await self._cache.get(key, SNAPSHOT_AGE_S, lambda: self._backend.slurm.task(cluster, array, task))

    async def progress(self, cluster: Cluster, job: JobState) -> ProgressOut | None:
        """Returns the progress that a job reported, or None. The files of an ended job are no longer followed, so they
        are read once more."""
        known = self._live.snapshot(cluster.name).progress.get(job.id)
        if known is not None or job.state not in ENDED or not job.start_time:
            return known
        key = f"{cluster.name}/progress/{job.id}/{job.start_time}"
        with contextlib.suppress(HeadwayError, TimeoutError, OSError):
            return await self._cache.get(
                key, PROGRESS_AGE_S, lambda: self._backend.jobs.progress_from_files(cluster, job)
            )
        return None

    async def array_states(self, cluster: Cluster, number: int) -> dict[str, str]:
        """Returns the state of each task of an array, by task number. It is read again, for all requests together, when
        the state of a task in the snapshot has changed, and from time to time if the snapshot has none of them: before the
        first reading after the submission, and again once Slurm has forgotten the array."""
        key, known = f"{cluster.name}/array/{number}", self._live.snapshot(cluster.name)
        if key not in known.derived:
            tasks = (job for job in known.jobs if job.array_job_id == number)
            known.derived[key] = tuple((job.id, job.array_task, job.state) for job in tasks)
        now, cached = known.derived[key], self._cache.peek(key)
        if now and cached and cached[0] == now:
            return dict(cached[1])

        async def read() -> tuple[object, dict[str, str]]:
            return now, await self._backend.slurm.array_states(cluster, number)

        return (await self._cache.get(key, SHARED_AGE_S, read))[1]

    async def publish_incident_changes(self, name: str) -> None:
        """Publishes to event streams which incidents have changed their state, including those that were closed."""
        found = await self._store.incidents.open_and_recent(name, also=self._live.open_incidents(name))
        self._live.publish_incident_changes(name, found)

    async def checks(self, cluster: Cluster) -> tuple[ReadinessCheck, ...]:
        """Returns the cluster's checks. If it does not answer, that is the only check, and it has failed."""
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await self._backend.lifecycle.readiness_checks(cluster)
        except (HeadwayError, TimeoutError, OSError) as error:
            return (ReadinessCheck("reachable", False, _why(error, cluster.head)),)

    def forget(self, name: str) -> None:
        """Drops what is known about a cluster that was taken down."""
        self._glanced.pop(name, None)
        self._read_from.pop(name, None)


def _with(
    jobs: Iterable[JobState], rows: Mapping[int, bytes], newer: Iterable[JobState]
) -> tuple[tuple[JobState, ...], dict[int, bytes]]:
    """Returns (jobs, rows) in which the `newer` jobs replace those of the same number. Rows of replaced jobs are
    dropped and made again when needed."""
    later = {job.id: job for job in newer}
    if not later:
        return tuple(jobs), dict(rows)
    merged = {job.id: job for job in jobs} | later
    kept = {number: row for number, row in rows.items() if number not in later}
    return tuple(merged[number] for number in sorted(merged)), kept


def _why(error: BaseException, head: str) -> str:
    if isinstance(error, HeadwayError):
        return error.first_line
    if isinstance(error, TimeoutError):
        return f"{head} did not answer within {READ_TIMEOUT_S:g} s: slurmctld, or the machine, may be down"
    return str(error) or type(error).__name__
