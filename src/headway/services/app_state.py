"""AppState: the objects and caches that every request needs, created once at start-up."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from headway.domain.cluster import SLURM_STATE_FOLDER, STATE_VERSION_FILE, Cluster
from headway.domain.dataset import mount_versions
from headway.domain.role import Role
from headway.domain.slurm.accounts import Share
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.state import MOST_SIBLINGS, Check, JobState, Room
from headway.errors import HeadwayError, NotFound
from headway.jobs.view.array_tasks import tasks_of
from headway.paths import volumes_dir
from headway.schemas.clusters import Document
from headway.schemas.jobs import ProgressOut
from headway.schemas.nodes import NodeActionOut
from headway.services.cluster_backend import ClusterBackend, ResolvedCluster
from headway.services.jobs.notebook_access import NotebookSessions
from headway.services.login_throttle import LoginThrottle
from headway.services.read_model.snapshot import LiveState, Snapshot, cluster_topic
from headway.services.shared_cache import SharedCache
from headway.store import ClusterRow, Store

if TYPE_CHECKING:
    from headway.datasets.library import Library
    from headway.jobs.explain.pending import PendingReason
    from headway.jobs.explain.placement_search import ClusterSnapshot

READ_TIMEOUT_S = 10.0
_FRESH_S = 0.4  # seconds; a reading younger than this is not repeated
SNAPSHOT_AGE_S = 2.0  # seconds; viewers get no older reading than this, if Slurm answers quickly
# Seconds that a viewer waits for a newer reading while jobs run or wait; the poller reads continuously then
SNAPSHOT_WAIT_S = 0.03
SHARED_AGE_S = 5.0
PROGRESS_AGE_S = 60.0  # seconds; nothing more is written by then


@dataclass(frozen=True)
class Oidc:
    """Settings of an OpenID provider. `roles` maps values of the role claim to roles; the first that matches counts."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    role_claim: str = ""
    roles: tuple[tuple[str, Role], ...] = ()
    user_claim: str = ""  # claim with the Linux user; "" if an admin sets it
    scopes: tuple[str, ...] = ()  # requested in addition to openid, profile and email

    @property
    def host(self) -> str:
        """Returns the host name of the provider's address."""
        return urlsplit(self.issuer).netloc


@dataclass(frozen=True)
class Settings:
    """Settings that do not change while the server runs."""

    state_dir: Path
    data_dir: Path | None = None  # folder of the clusters' data, if several servers share it; None: the state folder
    url: str = ""  # the address that people use, without a slash at the end
    database: str = ""
    notebooks: str = ""  # separate web origin on which notebooks are shown; a * in it gives each notebook its own
    cookie: str = "headway_session"
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")  # () allows every host
    dataset_roots: tuple[Path, ...] = ()  # () allows every folder except the system's
    oidc: Oidc | None = None
    tls: bool = False  # this process itself serves TLS
    proxies: tuple[str, ...] = ()  # addresses of reverse proxies, which report the client's address

    @property
    def data(self) -> Path:
        """Returns the folder of the clusters' data."""
        return self.data_dir or self.state_dir

    @property
    def https(self) -> bool:
        """Returns whether people reach the server by TLS, its own or a proxy's."""
        return self.url.startswith("https://")


@dataclass
class CommandInput:
    """Standard input of a running command: the pieces that it has not read yet, and a lock for the request that adds
    the next one."""

    queue: asyncio.Queue[bytes]
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class AppState:
    """The objects and caches that requests share: store, cluster backend, snapshots, settings, and running work."""

    store: Store
    backend: ClusterBackend
    live: LiveState
    settings: Settings
    clock: Callable[[], float] = time.time
    wake: asyncio.Event = field(default_factory=asyncio.Event)  # set when there is an operation to claim
    waiting: set[str] = field(default_factory=set)  # operations that at present only wait for jobs
    plans: dict[str, ShownPlan] = field(default_factory=dict)
    # Of running commands, by (person, input id)
    command_inputs: dict[tuple[str, str], CommandInput] = field(default_factory=dict)
    login_throttle: LoginThrottle = field(default_factory=LoginThrottle)
    notebooks: NotebookSessions = field(default_factory=NotebookSessions)
    running_commands: Counter[str] = field(default_factory=Counter)  # commands that run on clusters, by person
    open_logs: Counter[str] = field(default_factory=Counter)  # open logs, by person
    # Running uploads of bundles, by cluster and by (cluster, person); see services.jobs.bundles.
    bundle_slots: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = field(default_factory=WeakValueDictionary)
    form_locks: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary
    )  # of running form posts; see web.form_idempotency
    operation_views: WeakValueDictionary[str, Any] = field(
        default_factory=WeakValueDictionary
    )  # used by web.pages.cluster.operations
    # (cluster, node) -> the latest action of a person
    node_actions: dict[tuple[str, str], NodeActionOut] = field(default_factory=dict)
    background_tasks: set[asyncio.Task[None]] = field(
        default_factory=set
    )  # work that continues after its request was answered
    placement_worlds: dict[str, tuple[Snapshot, ClusterSnapshot, dict[int, PendingReason | None]]] = field(
        default_factory=dict
    )  # used by services.read_model.pending_reasons
    cache: SharedCache = field(init=False)
    _shown: dict[str, tuple[int, float, asyncio.Future[ClusterRow]]] = field(default_factory=dict)
    _known: dict[str, tuple[float, Cluster | None]] = field(default_factory=dict)
    _resolved: dict[str, tuple[str, Cluster]] = field(default_factory=dict)
    _datasets: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)
    _reading: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _looks: dict[str, asyncio.Task[Snapshot]] = field(default_factory=dict)
    _glanced: dict[str, dict[int, tuple[float, JobState]]] = field(default_factory=dict)
    # Start of the last complete reading, by time.monotonic()
    _read_from: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache = SharedCache(self.clock)

    async def row(self, name: str) -> ClusterRow:
        """Returns the cluster's row. Raises NotFound, which names the clusters that exist."""
        row = await self.store.clusters.get(name)
        if row is None:
            names = [c.name for c in await self.store.clusters.all()]
            raise NotFound(
                f"no cluster {name!r}", hint=f"there is {', '.join(names)}" if names else "headway apply FILE makes one"
            )
        return row

    async def shared_row(self, name: str) -> ClusterRow:
        """Returns the cluster's row for callers that a change has woken. They share one read that was made after the
        change."""
        change = self.live.hub.version(cluster_topic(name))
        known = self._shown.get(name)
        if known is None or known[0] != change or time.monotonic() >= known[1]:
            asked = asyncio.ensure_future(self.row(name))
            known = self._shown[name] = (change, time.monotonic() + 1.0, asked)
        return await asyncio.shield(known[2])

    async def cluster(self, name: str) -> tuple[ClusterRow, Cluster]:
        """Returns the cluster's row and its resolved document. Raises NotFound."""
        row = await self.row(name)
        return row, await self.resolved(row)

    async def resolved(self, row: ClusterRow) -> Cluster:
        """Returns the row's document, resolved. It is cached until the document or the cluster's datasets change."""
        until, names = self._datasets.get(row.name, (0.0, ()))
        if time.monotonic() >= until:
            names = await self.store.datasets.names(row.name)
            self._datasets[row.name] = (time.monotonic() + 1.0, names)
        key = fingerprint({"document": row.document, "datasets": names})
        known = self._resolved.get(row.name)
        if known is None or known[0] != key:
            found = await self.resolve(Document.model_validate(row.document))
            known = self._resolved[row.name] = (key, found.cluster)
        return known[1]

    async def resolve(self, document: Document) -> ResolvedCluster:
        """Returns the document resolved, with the dataset versions that exist on the cluster. Raises InvalidSpec with
        every fault."""
        found = await asyncio.to_thread(self.backend.lifecycle.resolve, document)
        cluster = found.cluster
        names = await self.store.datasets.names(cluster.name)
        folders = {name: str(self.library(cluster).folder(name)) for name in names}
        return replace(found, cluster=replace(cluster, storage=mount_versions(cluster.storage, folders)))

    def library(self, cluster: Cluster) -> Library:
        """Returns the place of dataset versions: on this machine for a local cluster, otherwise on the cluster's own
        machines (datasets.library_location)."""
        from headway.datasets.library import Library

        if not cluster.provider.volumes_on_server:
            return Library(Path(cluster.dataset_library))
        return Library(volumes_dir(self.settings.data.resolve(), cluster.name) / "library")

    def stored_slurm_version(self, cluster: Cluster, before: Cluster | None) -> str:
        """Returns the Slurm version that wrote the cluster's kept state, or "" if nothing is kept. For machines of an
        inventory it is the version in the cluster's previous file."""
        if not cluster.provider.volumes_on_server:
            return before.slurm_version if before else ""
        volume = self._head_volume(cluster)
        try:
            return (volume / STATE_VERSION_FILE).read_text().strip()
        except FileNotFoundError:  # nothing is kept, or the head was set up before the version was written down
            return before.slurm_version if before and (volume / PurePosixPath(SLURM_STATE_FOLDER).name).is_dir() else ""

    def record_slurm_version(self, cluster: Cluster, slurm_version: str) -> None:
        """Writes down the Slurm version of a local cluster whose head was set up before the version was stored."""
        file = self._head_volume(cluster) / STATE_VERSION_FILE
        if cluster.provider.volumes_on_server and not file.exists():
            file.write_text(f"{slurm_version}\n")

    def _head_volume(self, cluster: Cluster) -> Path:
        return volumes_dir(self.settings.data.resolve(), cluster.name) / "head"

    def forget_datasets(self, name: str) -> None:
        """Drops the cached dataset names, so that the next request gets the cluster with its present datasets."""
        self._datasets.pop(name, None)
        self._known.pop(name, None)

    async def refresh(self, cluster: Cluster, *, max_age_s: float = _FRESH_S) -> Snapshot:
        """Returns the cluster's snapshot, and reads it from Slurm first if it is older than `max_age_s`. If the cluster
        does not answer, returns the last one, marked as stale."""
        async with self._reading.setdefault(cluster.name, asyncio.Lock()):
            known = self.live.snapshot(cluster.name)
            if known.as_of is not None and not known.stale and self.clock() - known.as_of < max_age_s:
                return known
            began = time.monotonic()
            try:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    machines, reading = await asyncio.gather(
                        self.backend.lifecycle.machines(cluster), self.backend.slurm.read(cluster)
                    )
            except (HeadwayError, TimeoutError, OSError) as error:
                # A timeout says little, so a more precise reason that is already known is kept.
                why = known.stale if isinstance(error, TimeoutError) and known.stale else _why(error, cluster.head)
                self.live.mark_stale(cluster.name, why)
            else:
                known = self.live.snapshot(cluster.name)
                began = min(began, reading.began)
                self._read_from[cluster.name] = began
                seen = self._glanced.get(cluster.name, {})
                newer = self._glanced[cluster.name] = {number: one for number, one in seen.items() if one[0] > began}
                jobs, rows = _with(reading.jobs, reading.rows, [job for _, job in newer.values()])
                there = {job.id for job in jobs} if known.progress else ()
                self.live.store_snapshot(
                    Snapshot(
                        cluster.name,
                        tuple(node for node in reading.nodes if not node.absent),
                        jobs,
                        machines,
                        known.checks,
                        {number: one for number, one in known.progress.items() if number in there},
                        as_of=self.clock(),
                        job_rows=rows,
                        reservations=reading.reservations,
                        job_orders=known.take_recent_orders(self.clock()),
                    )
                )
            return self.live.snapshot(cluster.name)

    async def refresh_jobs(self, cluster: Cluster, numbers: Iterable[int]) -> None:
        """Updates only these jobs, independently of complete readings. Raises the errors of the request to Slurm."""
        at, asked = time.monotonic(), set(numbers)
        tasks = Counter(job.array_job_id for job in self.live.snapshot(cluster.name).jobs)
        many = {number for number in asked if number and tasks[number] > MOST_SIBLINGS}
        if many:  # an array's number would return all its tasks
            self.live.request_refresh(cluster.name)
        async with asyncio.timeout(READ_TIMEOUT_S):
            found = await self.backend.slurm.jobs_by_id(cluster, tuple(sorted(asked - many)))
        if self._read_from.get(cluster.name, 0.0) > at:  # a newer reading is stored already
            return
        known = self.live.snapshot(cluster.name)
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
            self.live.store_snapshot(replace(known, jobs=jobs, job_rows=rows))

    async def cached_snapshot(self, cluster: Cluster) -> Snapshot:
        """Returns the snapshot for viewers. All viewers share the readings, also those of the poller.

        Reading ten thousand jobs takes seconds. Viewers do not wait for that: they get the last reading, which says
        how old it is. While no job runs or waits, the poller reads seldom, and a reading is quick, so it is waited
        for."""
        known = self.live.snapshot(cluster.name)
        if known.as_of is not None and (known.stale or self.clock() - known.as_of < SNAPSHOT_AGE_S):
            return known
        look = self._looks.get(cluster.name)
        if look is None or look.done():
            look = self._looks[cluster.name] = asyncio.create_task(self.refresh(cluster, max_age_s=SNAPSHOT_AGE_S))
        await asyncio.wait({look}, timeout=SNAPSHOT_WAIT_S if any(known.counts) else None)
        return look.result() if look.done() else known

    async def history(self, cluster: Cluster) -> tuple[JobState, ...]:
        """Returns the jobs of the last days from accounting, shared by all requests for SHARED_AGE_S."""
        return await self.cache.get(
            f"{cluster.name}/history", SHARED_AGE_S, lambda: self.backend.slurm.history(cluster)
        )

    async def volume_usage(self, cluster: Cluster, max_age_s: float) -> tuple[Room, ...]:
        """Returns how full the cluster's volumes are, at most `max_age_s` old."""
        return await self.cache.get(
            f"{cluster.name}/rooms", max_age_s, lambda: self.backend.storage.volume_usage(cluster)
        )

    async def shares(self, cluster: Cluster) -> tuple[Share, ...]:
        """Returns what each team has used, shared by all requests for SHARED_AGE_S."""
        return await self.cache.get(f"{cluster.name}/shares", SHARED_AGE_S, lambda: self.backend.slurm.shares(cluster))

    async def job(self, cluster: Cluster, job_id: int) -> JobState:
        """Returns one job for a viewer: as last read, otherwise Slurm is asked (at most once in SNAPSHOT_AGE_S for all
        requests). Raises NotFound."""
        known = (await self.cached_snapshot(cluster)).by_id.get(job_id)
        if known is not None:
            return known
        return await self.cache.get(
            f"{cluster.name}/job/{job_id}", SNAPSHOT_AGE_S, lambda: self.backend.slurm.job(cluster, job_id)
        )

    async def task(self, cluster: Cluster, array: int, task: str) -> JobState:
        """Returns one task of an array, as `job` does. `task` is its array index. Raises NotFound."""
        known = tasks_of((await self.cached_snapshot(cluster)).jobs, array, task)
        if known:
            return known[0]
        key = f"{cluster.name}/job/{array}_{task}"
        return await self.cache.get(key, SNAPSHOT_AGE_S, lambda: self.backend.slurm.task(cluster, array, task))

    async def progress(self, cluster: Cluster, job: JobState) -> ProgressOut | None:
        """Returns the progress that a job reported, or None. The files of an ended job are no longer followed, so they
        are read once more."""
        known = self.live.snapshot(cluster.name).progress.get(job.id)
        if known is not None or job.state not in ENDED or not job.start_time:
            return known
        key = f"{cluster.name}/said/{job.id}/{job.start_time}"
        with contextlib.suppress(HeadwayError, TimeoutError, OSError):
            return await self.cache.get(key, PROGRESS_AGE_S, lambda: self.backend.jobs.ended_progress(cluster, job))
        return None

    async def array(self, cluster: Cluster, number: int) -> dict[str, str]:
        """Returns the state of each task of an array, by task number. It is read again, for all requests together, when
        the state of a task in the snapshot has changed."""
        key, known = f"{cluster.name}/array/{number}", self.live.snapshot(cluster.name)
        if key not in known.derived:
            tasks = (job for job in known.jobs if job.array_job_id == number)
            known.derived[key] = tuple((job.id, job.array_task, job.state) for job in tasks)
        now, cached = known.derived[key], self.cache.peek(key)
        if cached and cached[0] == now:
            return dict(cached[1])

        async def ask() -> tuple[object, dict[str, str]]:
            return now, await self.backend.slurm.array_states(cluster, number)

        return (await self.cache.get(key, SHARED_AGE_S, ask))[1]

    async def cached_cluster(self, name: str) -> Cluster:
        """Returns the cluster, from memory if it was read within the last second."""
        until, cluster = self._known.get(name, (0.0, None))
        if cluster is not None and time.monotonic() < until:
            return cluster
        async with self._reading.setdefault(f"{name}/row", asyncio.Lock()):
            until, cluster = self._known.get(name, (0.0, None))
            if cluster is None or time.monotonic() >= until:
                _, cluster = await self.cluster(name)
                self._known[name] = (time.monotonic() + 1.0, cluster)
            return cluster

    async def publish_incident_changes(self, name: str) -> None:
        """Publishes to event streams which incidents have changed their state, including those that were closed."""
        found = await self.store.incidents.open_and_recent(name, also=self.live.open_incidents(name))
        self.live.publish_incident_changes(name, found)

    async def checks(self, cluster: Cluster) -> tuple[Check, ...]:
        """Returns the cluster's checks. If it does not answer, that is the only check, and it has failed."""
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await self.backend.lifecycle.readiness_checks(cluster)
        except (HeadwayError, TimeoutError, OSError) as error:
            return (Check("reachable", False, _why(error, cluster.head)),)

    async def forget(self, name: str) -> None:
        """Drops everything stored in memory about a cluster that was taken down."""
        self.plans.pop(name, None)
        self._resolved.pop(name, None)
        self._shown.pop(name, None)
        self.forget_datasets(name)
        self.cache.forget_cluster(name)
        await self.backend.forget(name)
        self.placement_worlds.pop(name, None)
        self._glanced.pop(name, None)
        self._read_from.pop(name, None)
        self.live.forget_cluster(name)


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


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan that was just shown, so that apply need not read every machine again."""

    document: str  # fingerprint of the document
    digest: str
    asks: int
    at: float
    busy: str = ""  # nodes with jobs that would be removed


def fingerprint(value: Mapping[str, Any]) -> str:
    """Returns a hash that is equal for documents with equal content."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _why(error: BaseException, head: str) -> str:
    if isinstance(error, HeadwayError):
        return error.message.splitlines()[0]
    if isinstance(error, TimeoutError):
        return f"{head} did not answer within {READ_TIMEOUT_S:g} s: slurmctld, or the machine, may be down"
    return str(error) or type(error).__name__
