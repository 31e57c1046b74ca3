"""Listens to the node agents of every running cluster and acts on their events as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Protocol

import structlog

from headway.domain.cluster import Cluster
from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.store import ClusterRow

TICK_S = 1.0
AGAIN_S = 5.0  # seconds until an ended stream is reopened
_WORKS = frozenset({"ready", "failed", "changing"})  # a cluster whose apply failed may still run jobs
_CALM = frozenset({"ready", "failed"})

log = structlog.get_logger("headway.server.event_listener")


class EventSource(Protocol):
    """A source of events, which also acts on them (server.cluster_backend.health_loop)."""

    def listen(
        self, cluster: Cluster, is_idle: Callable[[], bool], on_jobs: Callable[[tuple[int, ...], bool], None]
    ) -> AsyncIterator[list[tuple[str, str]]]:
        """Yields the actions taken on events as (node or job, text). `is_idle` returns whether no operation runs.
        `on_jobs` is called with the ids of jobs and whether a node reported them (True) or only the controller's log
        (False). Ends or raises when the connection to the head is lost."""
        ...


class EventListener:
    """Keeps an event stream open to each running cluster."""

    def __init__(self, state: AppState, source: EventSource) -> None:
        self._state = state
        self._source = source
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, float] = {}
        self._states: dict[str, str] = {}

    async def run(self) -> None:
        """Starts and restarts the streams of all running clusters, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    rows = {row.name: row for row in await self._state.store.clusters.all() if row.state in _WORKS}
                except Exception as error:
                    log.error("store", error=str(error))
                    rows = {}
                self._states = {name: row.state for name, row in rows.items()}
                for name, row in rows.items():
                    task = self._tasks.get(name)
                    if (task is None or task.done()) and loop.time() >= self._due.get(name, 0.0):
                        self._due[name] = loop.time() + AGAIN_S
                        self._tasks[name] = asyncio.create_task(self._listen(row))
                for name in self._tasks.keys() - rows.keys():
                    self._tasks.pop(name).cancel()
                await asyncio.sleep(TICK_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _on_jobs(self, name: str, jobs: tuple[int, ...], sure: bool) -> None:
        """Requests a refresh of jobs that changed. Jobs that only the controller's log names are refreshed only if
        someone watches the cluster: most of those lines come from the scheduler itself."""
        if sure or self._state.live.is_watched(name):
            self._state.live.request_refresh(name, jobs)

    async def _listen(self, row: ClusterRow) -> None:
        try:
            cluster = await self._state.clusters.resolved(row)
            # A stream opens again after an outage or with a new head, which may lack changes.
            self._state.delivered_secrets.pop(row.name, None)
            batches = self._source.listen(
                cluster,
                lambda: self._states.get(row.name) in _CALM,
                partial(self._on_jobs, row.name),
            )
            async for messages in batches:
                for where, text in messages:
                    log.info("acted on events", cluster=row.name, where=where, did=text)
                    self._state.live.add_recent_event(row.name, text, level="warning", where=where)
                await self._state.readings.publish_incident_changes(row.name)
                self._state.live.notify_row_changed(row.name)
        except HeadwayError as error:
            log.info("no events from the head", cluster=row.name, error=error.message)
        except Exception as error:
            log.error("handling of events failed", cluster=row.name, exc_info=error)
