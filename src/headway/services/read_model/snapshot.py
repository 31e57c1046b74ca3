"""The snapshot of each cluster in memory, and the hub that notifies subscribers of changes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets as random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from headway.domain.incident import Incident, IncidentState
from headway.domain.machines.machine import Machine
from headway.domain.readiness import Check
from headway.domain.slurm.job_states import ENDED, RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState, Reservation
from headway.schemas.clusters import NewsOut
from headway.schemas.jobs import ProgressOut

MAX_EVENTS = 20_000  # enough for the starts and ends of an array of ten thousand tasks
# Streams that are updated at the same time after a reading, so that requests can run in between
MAX_CONCURRENT_STREAMS = 2
UNUSED_ORDER_S = 60.0  # seconds after which an unused order of jobs and its reading are dropped
ALL_JOBS = 0  # among requested job numbers: it is unknown which jobs have changed
OPERATIONS_TOPIC = "operations"  # published when an operation has ended


@dataclass(frozen=True)
class Notice:
    """One line of a cluster's recent history."""

    at: float
    text: str
    level: str = "info"  # info, warning or error
    where: str = ""


@dataclass(frozen=True)
class Snapshot:
    """A cluster as last read. `stale` says why the figures are old; "" if they are current."""

    cluster: str
    nodes: tuple[NodeState, ...] = ()
    jobs: tuple[JobState, ...] = ()  # queued, running, and those that ended within the last minutes
    machines: tuple[Machine, ...] = ()
    checks: tuple[Check, ...] = ()
    progress: dict[int, ProgressOut] = field(default_factory=dict)
    as_of: float | None = None  # None: never read
    stale: str = ""
    reservations: tuple[Reservation, ...] = ()
    job_rows: dict[int, bytes] = field(default_factory=dict, compare=False)  # job id -> its JSON for lists
    # Query -> its result and the reading that it was made from (this one or an earlier one).
    job_orders: dict[Any, tuple[Any, Snapshot]] = field(default_factory=dict, compare=False)
    # Cache of values computed from this snapshot
    derived: dict[Any, Any] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def counts(self) -> tuple[int, int]:
        """Returns the number of (running, waiting) jobs."""
        states = Counter(job.state for job in self.jobs)
        return sum(states[word] for word in RUNNING), sum(states[word] for word in WAITING)

    @cached_property
    def gpus_used(self) -> int:
        """Returns the number of allocated GPUs."""
        return sum(node.gpus_used for node in self.nodes)

    @cached_property
    def has_failed_nodes(self) -> bool:
        """Returns whether a node that should be in service is not."""
        return any(not (node.usable or node.changes) for node in self.nodes)

    @cached_property
    def by_id(self) -> dict[int, JobState]:
        """Returns the jobs by number."""
        return {job.id: job for job in self.jobs}

    def pop_recent_orders(self, now: float) -> dict[Any, tuple[Any, Snapshot]]:
        """Returns `job_orders` for the next reading, without those that have not been used for UNUSED_ORDER_S, and
        empties them here: otherwise each reading would keep all earlier ones in memory."""
        young = {
            question: entry
            for question, entry in self.job_orders.items()
            if now - (entry[1].as_of or 0.0) < UNUSED_ORDER_S
        }
        self.job_orders.clear()
        return young

    def with_ended(self, history: Iterable[JobState]) -> tuple[JobState, ...]:
        """Returns the snapshot's jobs, and those that only accounting still has."""
        return tuple(({job.id: job for job in history} | self.by_id).values())


class TopicHub:
    """Wakes everything that waits on a topic. A topic's number grows with every change, so none is missed."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._watchers: dict[str, int] = {}

    def publish(self, topic: str) -> None:
        """Increases the topic's number and wakes its waiters."""
        self._numbers[topic] = self._numbers.get(topic, 0) + 1
        for waiter in self._waiting.pop(topic, ()):
            if not waiter.done():
                waiter.set_result(None)

    def version(self, topic: str) -> int:
        """Returns the topic's number; 0 before its first change."""
        return self._numbers.get(topic, 0)

    async def wait_for_change(self, topic: str, seen: int, timeout_s: float | None = None) -> int:
        """Returns the topic's number once it is not `seen`, or after the timeout."""
        if self.version(topic) == seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(topic, set()).add(waiter)
            try:
                async with asyncio.timeout(timeout_s):
                    await waiter
            except TimeoutError:
                pass
            finally:
                others = self._waiting.get(topic, set())
                others.discard(waiter)
                if not others:
                    self._waiting.pop(topic, None)
        return self.version(topic)

    @contextlib.contextmanager
    def count_watcher(self, topic: str) -> Iterator[None]:
        """Counts a viewer while the context is open: a watched cluster is read more often."""
        self._watchers[topic] = self._watchers.get(topic, 0) + 1
        self.publish("watchers")
        try:
            yield
        finally:
            self._watchers[topic] -= 1
            if not self._watchers[topic]:
                del self._watchers[topic]

    def is_watched(self, topic: str) -> bool:
        return self._watchers.get(topic, 0) > 0

    def close(self) -> None:
        """Wakes all waiters, when the server stops."""
        for topic in list(self._waiting):
            self.publish(topic)


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """An event and its number, as JSON that is made once for all subscribers."""

    number: int
    cluster: str
    kind: str
    text: str


class LiveState:
    """Snapshots by cluster name. Written by the poller and the operations; read by the API and the pages."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.hub = TopicHub()
        self._now = clock
        self._snapshots: dict[str, Snapshot] = {}
        self._notices: dict[str, deque[Notice]] = {}
        self.stopping = asyncio.Event()
        self.stream_slots = asyncio.Semaphore(MAX_CONCURRENT_STREAMS)
        self.epoch = random.token_hex(4)  # event numbers start again with each start of the server
        self.last_event_number = 0
        self.refresh_requests: dict[str, set[int]] = {}  # cluster -> jobs that have changed, or ALL_JOBS
        self._published_events: deque[PublishedEvent] = deque(maxlen=MAX_EVENTS)
        self._incidents: dict[str, dict[int, str]] = {}

    def publish_events(self, *news: NewsOut) -> None:
        """Publishes events to all event streams."""
        for event in news:
            self.last_event_number += 1
            text = event.model_dump_json(exclude_defaults=True)
            self._published_events.append(PublishedEvent(self.last_event_number, event.cluster, event.kind, text))
        for place in {event.cluster for event in news}:
            self.hub.publish(events_topic(place))
        if news:
            self.hub.publish(events_topic(""))

    def events_after(self, seen: int) -> list[PublishedEvent] | None:
        """Returns the events after this number; None if some of them are no longer stored."""
        if seen < self.last_event_number - len(self._published_events):
            return None
        return list(
            itertools.islice(
                self._published_events, len(self._published_events) - (self.last_event_number - seen), None
            )
        )

    def publish_incident_changes(self, cluster: str, incidents: Iterable[Incident]) -> None:
        """Publishes an event for each incident whose state has changed since the last call. The first call publishes
        none."""
        now = {incident.number: incident for incident in incidents}
        known = self._incidents.get(cluster)
        self._incidents[cluster] = {number: incident.state.value for number, incident in now.items()}
        if known is None:
            return
        self.publish_events(
            *(
                NewsOut(
                    at=self._now(), cluster=cluster, kind="incident", name=str(number), state=incident.state.value,
                    before=known.get(number, ""), text=incident.what, node=incident.node,
                )
                for number, incident in now.items()
                if known.get(number) != incident.state.value
            )
        )  # fmt: skip

    def open_incidents(self, cluster: str) -> frozenset[int]:
        """Returns the incidents that were open at the last call of `publish_incident_changes`."""
        known = self._incidents.get(cluster, {}).items()
        return frozenset(number for number, state in known if not IncidentState(state).closed)

    def request_refresh(self, cluster: str, jobs: Iterable[int] = ()) -> None:
        """Requests a reading now, before the next regular one, because the cluster, perhaps these jobs, has changed."""
        self.refresh_requests.setdefault(cluster, set()).update(tuple(jobs) or (ALL_JOBS,))
        self.hub.publish("watchers")

    def is_watched(self, cluster: str) -> bool:
        """Returns whether the cluster has viewers."""
        return any(
            self.hub.is_watched(place) for place in (cluster_topic(cluster), events_topic(cluster), events_topic(""))
        )

    def snapshot(self, cluster: str) -> Snapshot:
        """Returns the last snapshot of a cluster; an empty one if it was never read."""
        return self._snapshots.get(cluster) or Snapshot(cluster)

    def store_snapshot(self, snapshot: Snapshot) -> None:
        """Stores a new snapshot, publishes the differences from the previous one, and notifies subscribers."""
        before = self.snapshot(snapshot.cluster)
        self._snapshots[snapshot.cluster] = snapshot
        if before.as_of is not None and snapshot.as_of is not None:  # the first reading is no change
            moved = _changed_jobs(before, snapshot)
            for notice in _notices_between(before, snapshot, moved, self._now()):
                self.add_notice(snapshot.cluster, notice.text, level=notice.level, where=notice.where)
            self.publish_events(*_events_between(before, snapshot, moved, self._now()))
        self.hub.publish(cluster_topic(snapshot.cluster))

    def mark_stale(self, cluster: str, why: str) -> None:
        """Keeps the last figures and stores why they are old."""
        self.store_snapshot(replace(self.snapshot(cluster), stale=why))

    def notify_row_changed(self, cluster: str) -> None:
        """Notifies subscribers that the cluster's row has changed."""
        self.hub.publish(cluster_topic(cluster))

    def forget_cluster(self, cluster: str) -> None:
        """Drops everything about a cluster that was taken down."""
        self._snapshots.pop(cluster, None)
        self._notices.pop(cluster, None)
        self._incidents.pop(cluster, None)
        self.refresh_requests.pop(cluster, None)
        self.hub.publish(cluster_topic(cluster))

    def add_notice(self, cluster: str, text: str, *, level: str = "info", where: str = "") -> None:
        """Adds a line to the cluster's recent history, which keeps the last 50."""
        self._notices.setdefault(cluster, deque(maxlen=50)).appendleft(Notice(self._now(), text, level, where))

    def notices(self, cluster: str) -> tuple[Notice, ...]:
        """Returns the notices, the newest first."""
        return tuple(self._notices.get(cluster, ()))

    async def watch_changes(self, cluster: str) -> AsyncIterator[None]:
        """Yields whenever the snapshot or the row has changed; ends when the server stops."""
        name = cluster_topic(cluster)
        with self.hub.count_watcher(name):
            seen = self.hub.version(name)
            while not self.stopping.is_set():
                seen = await self.hub.wait_for_change(name, seen)
                yield


def cluster_topic(cluster: str) -> str:
    return f"cluster/{cluster}"


def events_topic(cluster: str) -> str:
    """Returns the topic of a cluster's events; "" is the topic of all clusters."""
    return f"news/{cluster}"


def operation_topic(operation: str) -> str:
    return f"operation/{operation}"


def _changed_jobs(before: Snapshot, after: Snapshot) -> list[tuple[JobState | None, JobState]]:
    """Returns (as it was, as it is) for the jobs that are new, in another state or requeued."""
    if before.jobs is after.jobs:
        return []
    was = before.by_id.get
    return [
        (past, job)
        for job in after.jobs
        if (past := was(job.id)) is not job
        and (past is None or past.state != job.state or past.restarts != job.restarts)
    ]


def _events_between(
    before: Snapshot, after: Snapshot, moved: Iterable[tuple[JobState | None, JobState]], now: float
) -> Iterator[NewsOut]:
    """Yields events for the differences between two readings."""
    name = after.cluster
    was = {node.name: node for node in before.nodes} if before.nodes is not after.nodes else {}
    for node in after.nodes if was else ():
        old = was.get(node.name)
        if old is None or old.states != node.states or old.reason != node.reason:
            states = "+".join(old.states) if old else ""
            yield NewsOut(
                at=now, cluster=name, kind="node", name=node.name, state="+".join(node.states), before=states,
                text=node.reason,
            )  # fmt: skip
    for past, job in moved:
        yield NewsOut(
            at=now, cluster=name, kind="job", name=str(job.id), state=job.state, before=past.state if past else "",
            text=job.name, user=job.user,
        )  # fmt: skip
    for job in (before.by_id[number] for number in sorted(before.by_id.keys() - after.by_id.keys())):
        if job.state not in ENDED:
            yield NewsOut(
                at=now, cluster=name, kind="job", name=str(job.id), state="", before=job.state, text=job.name,
                user=job.user,
            )  # fmt: skip


def _notices_between(
    before: Snapshot, after: Snapshot, moved: Iterable[tuple[JobState | None, JobState]], now: float
) -> Iterator[Notice]:
    """Yields what happened between two readings, in words."""
    was = {node.name: node for node in before.nodes} if before.nodes is not after.nodes else {}
    for node in after.nodes if was else ():
        old = was.get(node.name)
        if old is None or old is node or old.usable == node.usable:
            continue
        if node.usable:
            yield Notice(now, "back in service", where=node.name)
        else:
            state = "+".join(node.states)
            yield Notice(now, f"{state}: {node.reason}" if node.reason else state, "error", node.name)
    for past, job in moved:
        if past is None:
            continue
        where = f"job {job.id}"
        if job.restarts > past.restarts:
            yield Notice(now, f"{job.name} was requeued", "warning", where)
        elif job.state == "RUNNING":
            yield Notice(now, f"{job.name} runs", where=where)
        elif job.state not in {"PENDING", "COMPLETING"}:
            level = "info" if job.state == "COMPLETED" else "warning"
            yield Notice(now, f"{job.name} ended: {job.state}", level, where)
