"""What the server knows about its clusters right now, in memory, and who is told when it changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace

from headway.domain.live import Check, JobState, NodeState
from headway.domain.machine import Machine
from headway.wire.schemas import ProgressOut

OPERATIONS = "operations"  # topic: some operation has ended


@dataclass(frozen=True)
class Notice:
    """One line of a cluster's recent history."""

    at: float
    text: str
    level: str = "info"  # info | warning | error
    where: str = ""


@dataclass(frozen=True)
class Snapshot:
    """A cluster as last read. `stale` says why the figures are old; "" when they are fresh."""

    cluster: str
    nodes: tuple[NodeState, ...] = ()
    jobs: tuple[JobState, ...] = ()  # queued, running, and those that ended within minutes
    machines: tuple[Machine, ...] = ()
    checks: tuple[Check, ...] = ()
    progress: dict[int, ProgressOut] = field(default_factory=dict)
    as_of: float | None = None  # None: never read
    stale: str = ""


class Hub:
    """Wakes everybody who waits on a topic. A topic's number grows with every change, so none is missed."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._watchers: dict[str, int] = {}

    def publish(self, topic: str) -> None:
        self._numbers[topic] = self._numbers.get(topic, 0) + 1
        for waiter in self._waiting.pop(topic, ()):
            if not waiter.done():
                waiter.set_result(None)

    def number(self, topic: str) -> int:
        return self._numbers.get(topic, 0)

    async def changed(self, topic: str, seen: int, timeout_s: float | None = None) -> int:
        """Returns the topic's number once it is not `seen`, or after the time."""
        if self.number(topic) == seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(topic, set()).add(waiter)
            try:
                async with asyncio.timeout(timeout_s):
                    await waiter
            except TimeoutError:
                pass
            finally:
                self._waiting.get(topic, set()).discard(waiter)
        return self.number(topic)

    @contextlib.contextmanager
    def watching(self, topic: str) -> Iterator[None]:
        """Counts a viewer: what is watched is read more often."""
        self._watchers[topic] = self._watchers.get(topic, 0) + 1
        self.publish("watchers")
        try:
            yield
        finally:
            self._watchers[topic] -= 1

    def watched(self, topic: str) -> bool:
        return self._watchers.get(topic, 0) > 0

    def close(self) -> None:
        """Wakes everybody, for the end."""
        for topic in list(self._waiting):
            self.publish(topic)


class Live:
    """Snapshots by cluster name. Written by the poller and the operations; read by the API and the page."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.hub = Hub()
        self._now = clock
        self._snapshots: dict[str, Snapshot] = {}
        self._notices: dict[str, deque[Notice]] = {}
        self.stopping = asyncio.Event()

    def snapshot(self, cluster: str) -> Snapshot:
        return self._snapshots.get(cluster) or Snapshot(cluster)

    def put(self, snapshot: Snapshot) -> None:
        before = self.snapshot(snapshot.cluster)
        self._snapshots[snapshot.cluster] = snapshot
        for notice in _news(before, snapshot, self._now()):
            self.note(snapshot.cluster, notice.text, level=notice.level, where=notice.where)
        self.hub.publish(topic(snapshot.cluster))

    def fail(self, cluster: str, why: str) -> None:
        """Keeps the last figures and says why they are old."""
        self.put(replace(self.snapshot(cluster), stale=why))

    def touch(self, cluster: str) -> None:
        """The cluster's row changed."""
        self.hub.publish(topic(cluster))

    def forget(self, cluster: str) -> None:
        self._snapshots.pop(cluster, None)
        self._notices.pop(cluster, None)
        self.hub.publish(topic(cluster))

    def note(self, cluster: str, text: str, *, level: str = "info", where: str = "") -> None:
        self._notices.setdefault(cluster, deque(maxlen=50)).appendleft(Notice(self._now(), text, level, where))

    def notices(self, cluster: str) -> tuple[Notice, ...]:
        """Newest first."""
        return tuple(self._notices.get(cluster, ()))

    async def subscribe(self, cluster: str) -> AsyncIterator[None]:
        """Yields whenever the snapshot or the row changed; ends when the server stops."""
        name = topic(cluster)
        with self.hub.watching(name):
            seen = self.hub.number(name)
            while not self.stopping.is_set():
                seen = await self.hub.changed(name, seen)
                yield


def topic(cluster: str) -> str:
    return f"cluster/{cluster}"


def operation_topic(operation: str) -> str:
    return f"operation/{operation}"


def _news(before: Snapshot, after: Snapshot, now: float) -> Iterator[Notice]:
    """What happened between two readings, in words."""
    if before.as_of is None or after.as_of is None:
        return
    was = {node.name: node for node in before.nodes}
    for node in after.nodes:
        old = was.get(node.name)
        if old is None or old.usable == node.usable:
            continue
        if node.usable:
            yield Notice(now, "back in service", where=node.name)
        else:
            state = "+".join(node.states)
            yield Notice(now, f"{state}: {node.reason}" if node.reason else state, "error", node.name)
    jobs = {job.id: job for job in before.jobs}
    for job in after.jobs:
        past = jobs.get(job.id)
        if past is None or (past.state == job.state and past.restarts == job.restarts):
            continue
        where = f"job {job.id}"
        if job.restarts > past.restarts:
            yield Notice(now, f"{job.name} was requeued", "warning", where)
        elif job.state == "RUNNING":
            yield Notice(now, f"{job.name} runs", where=where)
        elif job.state not in {"PENDING", "COMPLETING"}:
            level = "info" if job.state == "COMPLETED" else "warning"
            yield Notice(now, f"{job.name} ended: {job.state}", level, where)
