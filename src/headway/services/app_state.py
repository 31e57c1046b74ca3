"""AppState: the objects that every request needs, created once at start-up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from headway.domain.serving.service_proxy import ProxyReading
from headway.schemas.nodes.nodes import NodeActionOut
from headway.services.cluster.resolved_clusters import ResolvedClusters
from headway.services.cluster.shown_plan import ShownPlan
from headway.services.cluster_backend import ClusterBackend
from headway.services.first_in_window import FirstInWindow
from headway.services.jobs.notebooks.notebook_access import NotebookSessions
from headway.services.login_throttle import LoginThrottle
from headway.services.mlflow.status import MlflowStatus
from headway.services.read_model.live_state import LiveState
from headway.services.read_model.readings import ClusterReadings
from headway.services.read_model.snapshot import Snapshot
from headway.services.request_limits import LINKS_PER_MINUTE, REQUESTS_PER_MINUTE
from headway.services.server_settings import Settings
from headway.services.shared_cache import SharedCache, SharedReads
from headway.services.token_buckets import TokenBuckets
from headway.store import Store

if TYPE_CHECKING:
    from headway.jobs.explain.pending_explanation import PendingReason
    from headway.jobs.explain.placement_search import ClusterSnapshot


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
    batches_due: asyncio.Event = field(default_factory=asyncio.Event)  # set when a batch was started or stopped
    sweeps_due: asyncio.Event = field(default_factory=asyncio.Event)  # set when a sweep was started or stopped
    promotions_due: asyncio.Event = field(default_factory=asyncio.Event)  # set when a promotion has a next step
    services_due: asyncio.Event = field(default_factory=asyncio.Event)  # set when a service or a key was changed
    proxies: dict[str, ProxyReading] = field(
        default_factory=dict
    )  # what proxies reported in the last round, by cluster
    waiting: set[str] = field(default_factory=set)  # operations that at present only wait for jobs
    plans: dict[str, ShownPlan] = field(default_factory=dict)
    # Of running commands, by (person, input id)
    command_inputs: dict[tuple[str, str], CommandInput] = field(default_factory=dict)
    token_uses: FirstInWindow = field(default_factory=FirstInWindow)  # by token and address
    login_throttle: LoginThrottle = field(default_factory=LoginThrottle)
    notebooks: NotebookSessions = field(default_factory=NotebookSessions)
    running_commands: Counter[str] = field(default_factory=Counter)  # commands that run on clusters, by person
    open_logs: Counter[str] = field(default_factory=Counter)  # open logs, by person
    running_plans: Counter[str] = field(default_factory=Counter)  # plans that are being computed, by person
    large_requests: Counter[str] = field(default_factory=Counter)  # requests with a large body, by person
    # One large request of a person is handled at a time; see api.app.
    large_request_locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    open_event_streams: Counter[str] = field(default_factory=Counter)  # open streams of events, by person
    # Running uploads of bundles, by cluster and by (cluster, person); see services.jobs.bundles.
    bundle_slots: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = field(default_factory=WeakValueDictionary)
    form_locks: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary
    )  # of running form posts; see web.form_idempotency
    # Of the copies of trainings' metrics, by cluster; see services.jobs.training_metrics
    metric_locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    mlflow: MlflowStatus = field(default_factory=MlflowStatus)
    operation_views: WeakValueDictionary[str, Any] = field(
        default_factory=WeakValueDictionary
    )  # used by web.pages.cluster.operations
    # (version, valid until, reading) by cluster; used by services.read_model.overview
    overviews: SharedReads[Any] = field(default_factory=SharedReads)
    # Job id -> number of its colour and letter, by cluster; used by web.pages.cluster.overview
    job_keys: dict[str, dict[int, int]] = field(default_factory=dict)
    # (cluster, node) -> the latest action of a person
    node_actions: dict[tuple[str, str], NodeActionOut] = field(default_factory=dict)
    # Cluster -> mark of the secrets of jobs that all its heads have, as far as this server knows; see
    # services.job_secrets.delivery
    delivered_secrets: dict[str, str] = field(default_factory=dict)
    background_tasks: set[asyncio.Task[None]] = field(
        default_factory=set
    )  # work that continues after its request was answered
    placement_snapshots: dict[str, tuple[Snapshot, ClusterSnapshot, dict[int, PendingReason | None]]] = field(
        default_factory=dict
    )  # used by services.queue.pending_reasons
    submit_buckets: TokenBuckets = field(init=False)  # of jobs that people submit, by person
    # Of requests of people, and of sign-in links that they create, by person
    request_buckets: TokenBuckets = field(default_factory=lambda: TokenBuckets(REQUESTS_PER_MINUTE))
    link_buckets: TokenBuckets = field(default_factory=lambda: TokenBuckets(LINKS_PER_MINUTE))
    cache: SharedCache = field(init=False)
    clusters: ResolvedClusters = field(init=False)
    readings: ClusterReadings = field(init=False)

    def __post_init__(self) -> None:
        self.submit_buckets = TokenBuckets(self.settings.submits_per_minute)
        self.cache = SharedCache(self.clock)
        self.clusters = ResolvedClusters(self.store, self.backend, self.live, self.settings)
        self.readings = ClusterReadings(self.store, self.backend, self.live, self.cache, self.clock)

    async def forget(self, name: str) -> None:
        """Drops everything stored in memory about a cluster that was taken down."""
        self.plans.pop(name, None)
        self.clusters.forget(name)
        self.cache.forget_cluster(name)
        await self.backend.forget(name)
        self.placement_snapshots.pop(name, None)
        self.overviews.forget(name)
        self.job_keys.pop(name, None)
        self.delivered_secrets.pop(name, None)
        self.proxies.pop(name, None)
        self.readings.forget(name)
        self.live.forget_cluster(name)
