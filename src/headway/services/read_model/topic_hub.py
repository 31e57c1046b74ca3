"""Topics on which pages, event streams and workers wait for changes of clusters and operations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

OPERATIONS_TOPIC = "operations"  # published when an operation has ended


def cluster_topic(cluster: str) -> str:
    """Returns the topic whose number changes with a cluster's snapshot or row."""
    return f"cluster/{cluster}"


def events_topic(cluster: str) -> str:
    """Returns the topic of a cluster's events; "" is the topic of all clusters."""
    return f"news/{cluster}"


def operation_topic(operation: str) -> str:
    """Returns the topic whose number changes with an operation's state or progress."""
    return f"operation/{operation}"


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
        """Returns whether a viewer is counted for the topic now."""
        return self._watchers.get(topic, 0) > 0

    def close(self) -> None:
        """Wakes all waiters, when the server stops."""
        for topic in list(self._waiting):
            self.publish(topic)
