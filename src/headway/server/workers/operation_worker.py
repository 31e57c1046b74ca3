"""Claims operations by lease and runs them. The API only writes rows; all long work happens here."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial

import structlog

from headway.domain.operation_kinds import OperationKind
from headway.errors import HeadwayError, Refused
from headway.schemas.base import ErrorOut
from headway.server.operations.operation_run import OperationRun
from headway.server.operations.registry import HANDLERS
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_news
from headway.services.cluster.operation_view import failure_for_everyone
from headway.services.error_report import error_out
from headway.services.read_model.topic_hub import OPERATIONS_TOPIC, operation_topic
from headway.store import Operation, StoreUnavailable
from headway.store.clusters.operations import MAX_ATTEMPTS
from headway.store.db.errors import CommitUnknown

LEASE_S = 30.0
# seconds between claims: an operation queued by another server, or an expired lease, does not wake this one
LOOK_S = 1.0
AT_ONCE = 8  # operations at a time, not counting those that only wait for jobs
STEADY_S = 600.0
AWAY_S = 2.0  # seconds between tries to reach the database
MOST_LATE = 5  # statements of one operation that may time out before it fails: one of them takes too long in itself
WAS_AWAY = "the server's database was down; continuing"

log = structlog.get_logger("headway.server.operation_worker")


class OperationWorker:
    """Runs queued operations. `owner` names this server in leases and is unique among running servers."""

    def __init__(self, state: AppState, owner: str, *, lease_s: float = LEASE_S) -> None:
        self._state = state
        self._owner = owner
        self._lease_s = lease_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._replanned: set[str] = set()

    async def run(self) -> None:
        """Claims and runs operations until cancelled. Running operations are then cancelled too, and their leases
        are released for the next server."""
        state = self._state
        try:
            while True:
                state.wake.clear()
                operation = None
                if sum(task.get_name() not in state.waiting for task in self._tasks) < AT_ONCE:
                    operation = await self._claim()
                if operation is None:
                    # Not asyncio.wait_for: in Python 3.11 it loses a cancellation that comes together with the wake.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await state.wake.wait()
                    continue
                task = asyncio.create_task(self._hold(operation), name=operation.id)
                self._tasks.add(task)
                task.add_done_callback(self._done)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await state.store.operations.release_leases(self._owner)

    async def _claim(self) -> Operation | None:
        try:
            running = [task.get_name() for task in self._tasks]
            return await self._state.store.operations.claim(self._owner, self._state.clock(), self._lease_s, running)
        except Exception as error:  # the database may be unreachable for a while
            log.error("claim", error=str(error))
            return None

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._state.waiting.discard(task.get_name())
        self._state.wake.set()
        self._state.live.hub.publish(OPERATIONS_TOPIC)
        if not task.cancelled() and task.exception() is not None:
            log.error("operation", operation=task.get_name(), exc_info=task.exception())

    async def _hold(self, operation: Operation) -> None:
        """Runs the operation while its lease is renewed; stops it if the lease is lost."""
        work = asyncio.create_task(self._carry_out(operation))
        renewal = asyncio.create_task(self._renew(operation))
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                log.error("lease lost", operation=operation.id)
        finally:
            for task in (work, renewal):
                task.cancel()
            await asyncio.gather(work, renewal, return_exceptions=True)
        if work.done() and not work.cancelled():
            work.result()

    async def _renew(self, operation: Operation) -> None:
        """Renews the lease periodically. Returns when it is lost."""
        began = time.monotonic()
        held_until = began + self._lease_s
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                until = self._state.clock() + self._lease_s
                steady = time.monotonic() - began > STEADY_S
                if not await self._state.store.operations.renew(operation.id, self._owner, until, steady=steady):
                    return
                held_until = time.monotonic() + self._lease_s
            except Exception as error:
                log.warning("renew", operation=operation.id, error=str(error))
                if time.monotonic() > held_until:
                    return

    async def _carry_out(self, operation: Operation) -> None:
        state, began = self._state, time.monotonic()
        log.info("operation begins", operation=operation.id, kind=operation.kind, cluster=operation.cluster)
        state.live.publish_events(operation_news(operation, "running", state.clock()))
        error: ErrorOut | None = None
        kept: tuple[str, ...] = ()
        try:
            if operation.attempts > MAX_ATTEMPTS:
                raise Refused(
                    f"the server stopped {MAX_ATTEMPTS} times during the {operation.kind}", hint="headway server logs"
                )
            kept = await self._patiently(operation)
        except Exception as failure:
            if stopping():  # an error during cleanup: the next server continues the operation
                log.warning("operation stopped", operation=operation.id, error=str(failure))
                raise asyncio.CancelledError from failure
            if not isinstance(failure, HeadwayError):
                log.error("bug", operation=operation.id, exc_info=failure)
            error = error_out(failure)
        await self._written(operation, error, kept)
        self._replanned.discard(operation.id)
        seconds = round(time.monotonic() - began, 2)
        log.info(
            "operation ends", operation=operation.id, seconds=seconds, failed=error is not None,
            message=error.message if error else "",
        )  # fmt: skip
        state.live.notify_row_changed(operation.cluster)

    async def _patiently(self, operation: Operation) -> tuple[str, ...]:
        """Runs the operation, and runs it again after the database was unreachable, as after a restart of the
        server. If the database is unreachable for longer than a lease, this ends with the lease, and the server that
        claims the operation next continues it. An operation fails if MOST_LATE of its statements are not answered in
        time. Returns what the handler returned."""
        note = "the server was restarted; continuing" if operation.attempts > 1 else ""
        late = 0
        while True:
            try:
                if note:
                    await self._report(operation, "server", note, level="warning")
                return await HANDLERS[operation.kind](
                    OperationRun(self._state, operation, partial(self._report, operation), self._replanned)
                )
            except StoreUnavailable as error:
                late += isinstance(error, CommitUnknown)
                if late == MOST_LATE:
                    raise
                log.warning("the database does not answer", operation=operation.id, error=error.message)
                note = WAS_AWAY
                await asyncio.sleep(AWAY_S)

    async def _written(self, operation: Operation, error: ErrorOut | None, kept: tuple[str, ...]) -> None:
        """Writes the operation's end. Retries while the database is unreachable, until the lease is over, because
        finished work must not be repeated."""
        while True:
            try:
                return await self._end(operation, error, kept)
            except StoreUnavailable as away:
                log.warning("the database does not answer", operation=operation.id, error=away.message)
                await asyncio.sleep(AWAY_S)

    async def _end(self, operation: Operation, error: ErrorOut | None, kept: tuple[str, ...]) -> None:
        state, name = self._state, operation.cluster
        reason = failure_for_everyone(operation.kind, error.model_dump() if error else None)
        if error is not None:
            row = await state.store.clusters.get(name)
            # Operations that do not change the cluster leave its state, and an operation refused before it began
            # changed nothing.
            waits = operation.kind.changes_cluster and operation.id in state.waiting
            began = not operation.subject and row is not None and row.state in ("changing", "creating")
            if waits or began:
                await state.store.clusters.save(name, state="failed")
            # clients that follow the operation get the full error at the end
            await self._report(operation, operation.kind, error.first_line, level="error", done=True)
            state.live.add_recent_event(name, f"{operation.kind} failed: {reason}", level="error")
        elif operation.kind is not OperationKind.DOWN:
            if operation.kind.changes_cluster:
                await state.store.clusters.save(name, state="ready")
            state.live.add_recent_event(name, f"{operation.kind} by {operation.person} is done")
        await state.store.operations.finish(
            operation.id,
            self._owner,
            "failed" if error else "done",
            error=error.model_dump() if error else None,
            kept=kept,
        )
        state.live.publish_events(operation_news(operation, "failed" if error else "done", state.clock(), reason))
        state.live.hub.publish(operation_topic(operation.id))

    async def _report(
        self,
        operation: Operation,
        step: str,
        text: str,
        *,
        level: str = "info",
        done: bool = False,
        seconds: float | None = None,
    ) -> None:
        await self._state.store.operations.add_event(operation.id, step, text, level=level, done=done, seconds=seconds)
        self._state.live.hub.publish(operation_topic(operation.id))


def stopping() -> bool:
    """Returns whether the current task was cancelled, even if its cleanup raised another exception."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
