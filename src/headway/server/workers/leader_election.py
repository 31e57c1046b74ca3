"""Elects one leader among the servers of a database. Only the leader runs operations, acts on faults and makes
scheduled backups. The others answer requests, and one of them takes over if the leader fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import structlog

from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_news
from headway.services.cluster.operation_view import failure_for_everyone
from headway.services.read_model.topic_hub import OPERATIONS_TOPIC, operation_topic
from headway.store import Operation
from headway.store.db.server_locks import ANSWER_S

LOOK_S = 0.5
# By then a leader that lost its database connection has noticed it and stopped everything.
GRACE_S = LOOK_S + ANSWER_S + 1.0
FOLLOW_S = 1.0
END_S = 10.0  # seconds that cancelled loops get to end before they are cancelled again
_MANY = 100

log = structlog.get_logger("headway.server.leader_election")
Loops = Mapping[str, Callable[[], Coroutine[Any, Any, None]]]


class LeaderElection:
    """Runs `loops` while this server leads. `stop_leading` stops everything else that must end with the lead."""

    def __init__(
        self,
        state: AppState,
        loops: Loops,
        stop_leading: Callable[[], Awaitable[None]],
        on_ended: Callable[[asyncio.Task[None]], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._locks = state.store.server_locks
        self._loops = loops
        self._stop_leading = stop_leading
        self._on_ended = on_ended
        self._ending: set[asyncio.Task[None]] = set()  # loops of the previous lead that have not ended yet

    async def run(self) -> None:
        """Takes part in the election until cancelled."""
        try:
            while True:
                following = asyncio.create_task(Follower(self._state).run(), name="follow")
                try:
                    await self._until_it_leads()
                finally:
                    following.cancel()
                    await asyncio.wait({following}, timeout=END_S)
                await self._lead()
        finally:
            await self._end()

    async def _until_it_leads(self) -> None:
        locks, reported = self._locks, ""
        while locks.shared:
            try:
                await locks.register()
                await self._end()
                if not self._ending and await locks.try_to_lead():
                    await asyncio.sleep(GRACE_S)
                    if await locks.try_to_lead():  # checked again after GRACE_S: taking the lead twice is harmless
                        # No other server runs operations now.
                        freed = await self._state.store.operations.expire_leases("")
                        log.info("this server is active", freed_leases=freed)
                        return
            except Exception as error:  # the database may be unreachable for a while
                if str(error) != reported:
                    log.warning("the database does not answer, so no server is active", error=str(error))
                reported = str(error)
            await asyncio.sleep(LOOK_S)

    async def _lead(self) -> None:
        locks = self._locks
        locks.leads = True
        tasks = [asyncio.create_task(loop(), name=name) for name, loop in self._loops.items()]
        for task in tasks:
            task.add_done_callback(self._on_ended)
        try:
            while True:
                if not await locks.is_registered():
                    log.warning("this server is no longer active: the database does not answer")
                    return
                await asyncio.sleep(LOOK_S)
        finally:
            locks.leads = not locks.shared
            for task in tasks:
                task.cancel()
            self._ending = set(tasks)
            # Before waiting for the loops: a loop may wait long for a dead connection, and another server leads soon.
            await self._rest()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(END_S):
                await self._stop_leading()
        except Exception as error:
            log.error("the background loops did not stop cleanly", exc_info=error)

    async def _end(self) -> None:
        """Waits for the loops of the previous lead to end; cancels again those that still wait for a dead connection."""
        if not self._ending:
            return
        _, self._ending = await asyncio.wait(self._ending, timeout=END_S)
        for task in self._ending:
            log.warning("a worker of the previous lead has not ended", loop=task.get_name())
            task.cancel()


class Follower:
    """Publishes the progress of operations that another server runs to the people connected to this server."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._known: dict[str, str] = {}

    async def run(self) -> None:
        """Follows operations until cancelled. Returns at once if the database is not shared."""
        if not self._state.store.server_locks.shared:
            return
        first = True
        while True:
            try:
                await self.publish_changes(silent=first)
                first = False
            except Exception as error:
                log.warning("not followed", error=str(error))
            await asyncio.sleep(FOLLOW_S)

    async def publish_changes(self, *, silent: bool = False) -> None:
        """Publishes state changes of operations since the last call. `silent`: only records them."""
        found = await self._state.store.operations.recent(limit=_MANY)
        for operation in reversed(found):
            before = self._known.get(operation.id)
            if operation.state not in (before, "queued") and not silent:
                await self._publish(operation)
        self._known = {row.id: row.state for row in found}

    async def _publish(self, operation: Operation) -> None:
        state, name = self._state, operation.cluster
        text = failure_for_everyone(operation.kind, operation.error)
        state.live.publish_events(operation_news(operation, operation.state, state.clock(), text))
        state.live.hub.publish(operation_topic(operation.id))
        if operation.finished:
            outcome = (
                f"{operation.kind} failed: {text}"
                if operation.error
                else f"{operation.kind} by {operation.person} is done"
            )
            state.live.add_recent_event(name, outcome, level="error" if operation.error else "info")
            state.live.hub.publish(OPERATIONS_TOPIC)
            if operation.kind.invalidates_connections:
                await state.forget(name)
        state.live.notify_row_changed(name)
