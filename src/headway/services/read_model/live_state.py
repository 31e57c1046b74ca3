"""The live state of all clusters in memory: snapshots, recent events and the events of streams, which pages and lists show."""

from __future__ import annotations

import asyncio
import itertools
import secrets as random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

from headway.domain.incident import Incident, IncidentState
from headway.schemas.event_stream import ClusterEventOut
from headway.services.read_model.live_events import (
    EVENTS_S,
    MAX_EVENTS,
    PublishedEvent,
    changed_jobs,
    events_between,
    recent_events_between,
)
from headway.services.read_model.snapshot import RecentEvent, Snapshot
from headway.services.read_model.topic_hub import TopicHub, cluster_topic, events_topic

# Streams that are updated at the same time after a reading, so that requests can run in between
MAX_CONCURRENT_STREAMS = 2
ALL_JOBS = 0  # among requested job numbers: it is unknown which jobs have changed


class LiveState:
    """Snapshots by cluster name. Written by the poller and the operations; read by the API and the pages."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.hub = TopicHub()
        self._now = clock
        self._snapshots: dict[str, Snapshot] = {}
        self._recent_events: dict[str, deque[RecentEvent]] = {}
        self.stopping = asyncio.Event()
        self.stream_slots = asyncio.Semaphore(MAX_CONCURRENT_STREAMS)
        self.epoch = random.token_hex(4)  # event numbers start again with each start of the server
        self.last_event_number = 0
        self.refresh_requests: dict[str, set[int]] = {}  # cluster -> jobs that have changed, or ALL_JOBS
        self._published_events: deque[PublishedEvent] = deque(maxlen=MAX_EVENTS)
        self._incidents: dict[str, dict[int, str]] = {}

    def publish_events(self, *news: ClusterEventOut) -> None:
        """Publishes events to all event streams, and drops those that are no longer kept."""
        now, events = self._now(), self._published_events
        for event in news:
            self.last_event_number += 1
            text = event.model_dump_json(exclude_defaults=True)
            events.append(PublishedEvent(self.last_event_number, now, event.cluster, event.kind, text))
        while events and events[0].at < now - EVENTS_S:
            events.popleft()
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
                ClusterEventOut(
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
            moved = changed_jobs(before, snapshot)
            for event in recent_events_between(before, snapshot, moved, self._now()):
                self.add_recent_event(snapshot.cluster, event.text, level=event.level, where=event.where)
            self.publish_events(*events_between(before, snapshot, moved, self._now()))
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
        self._recent_events.pop(cluster, None)
        self._incidents.pop(cluster, None)
        self.refresh_requests.pop(cluster, None)
        self.hub.publish(cluster_topic(cluster))

    def add_recent_event(self, cluster: str, text: str, *, level: str = "info", where: str = "") -> None:
        """Adds a line to the cluster's recent history, which keeps the last 50."""
        self._recent_events.setdefault(cluster, deque(maxlen=50)).appendleft(
            RecentEvent(self._now(), text, level, where)
        )

    def recent_events(self, cluster: str) -> tuple[RecentEvent, ...]:
        """Returns the recent events, the newest first."""
        return tuple(self._recent_events.get(cluster, ()))

    async def watch_changes(self, cluster: str) -> AsyncIterator[None]:
        """Yields whenever the snapshot or the row has changed; ends when the server stops."""
        name = cluster_topic(cluster)
        with self.hub.count_watcher(name):
            seen = self.hub.version(name)
            while not self.stopping.is_set():
                seen = await self.hub.wait_for_change(name, seen)
                yield
