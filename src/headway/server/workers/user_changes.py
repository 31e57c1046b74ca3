"""Locks the Linux users of people who are disabled or removed on all clusters, unlocks those of people who return, and puts
people into the teams that the sign-in provider gives them. What is due is in the database, so a cluster that does not answer is
tried again until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import structlog

from headway.domain.access.user_change_results import UserLockResult, UserUpdateResult
from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.services.scim.people_sync import sync_unfinished
from headway.store import ClusterRow, DueUserChange

TICK_S = 1.0
AGAIN_S = 10.0  # seconds until a change is tried or checked again; twice as long each time
MOST_AGAIN_S = 60.0
AT_ONCE = 8  # users of one cluster that are locked at the same time
TRY_S = 180.0
_TOO_SLOW = f"not done within {TRY_S:.0f} s"
RESOLVE_S = 5.0  # an operation that starts this soon after a change may have read the users before it
MOST_IDS = 100  # job ids in the audit line

log = structlog.get_logger("headway.server.user_changes")


class UserChanges:
    """Carries out what `store.user_changes` says is due. Each cluster has tasks of its own, so that a cluster that does not
    answer delays no other. Each lock is a task; all other users of a cluster are changed by one task after the other, because
    rules of machines name all users, and the older of two texts would leave out the newer user."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._after: dict[tuple[str, str, float], float] = {}  # row -> when it may be tried, on the event loop's clock
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}  # by cluster and user, an update also by ""
        self._at_once: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by cluster

    async def run(self) -> None:
        """Works until cancelled."""
        try:
            while True:
                try:
                    await sync_unfinished(self._state)
                    await self.start_due(asyncio.get_running_loop().time())
                except Exception as error:
                    log.error("changes of users", exc_info=error)
                await asyncio.sleep(TICK_S)
        finally:
            tasks = {*self._running.values()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def start_due(self, now: float) -> list[asyncio.Task[None]]:
        """Starts a try of everything that is due, and returns the tasks. `now`: the time on the event loop's clock."""
        due = await self._state.store.user_changes.due()
        self._after = {_key(row): self._after[_key(row)] for row in due if _key(row) in self._after}
        ready = [
            row
            for row in due
            if self._after.get(_key(row), 0.0) <= now and (row.cluster, row.user) not in self._running
        ]
        if not ready:
            return []
        locked = await self._state.store.user_changes.locked()
        clusters = {row.name: row for row in await self._state.store.clusters.all()}
        tasks: dict[tuple[str, str], list[DueUserChange]] = {}
        for row in ready:
            tasks.setdefault((row.cluster, row.user if row.user in locked else ""), []).append(row)
        return [
            self._start(key, rows, clusters.get(key[0]), now) for key, rows in tasks.items() if key not in self._running
        ]

    def _start(
        self, key: tuple[str, str], rows: list[DueUserChange], cluster: ClusterRow | None, now: float
    ) -> asyncio.Task[None]:
        """Starts a task for these rows of one cluster: the lock of one user, or the update of several."""
        for row in rows:
            self._after[_key(row)] = now + min(AGAIN_S * 2**row.tries, MOST_AGAIN_S)
        at_once = self._at_once.setdefault(key[0], asyncio.Semaphore(AT_ONCE))

        async def carry_out() -> None:
            if cluster is None:  # it was taken down; a new cluster of this name is made with the right users
                for row in rows:
                    await self._state.store.user_changes.finish(row)
            elif key[1]:
                async with at_once:
                    await self._lock(cluster, rows[0])
            else:
                await self._update(cluster, rows)

        def ended(task: asyncio.Task[None]) -> None:
            self._running = {known: other for known, other in self._running.items() if other is not task}
            if not task.cancelled() and task.exception() is not None:
                users = [row.user for row in rows]
                log.error("a change of users", cluster=key[0], users=users, exc_info=task.exception())

        task = asyncio.create_task(carry_out())
        self._running |= dict.fromkeys([key, *((key[0], row.user) for row in rows)], task)
        task.add_done_callback(ended)
        return task

    async def _lock(self, cluster: ClusterRow, row: DueUserChange) -> None:
        """Locks one user, and records the result."""
        # An apply that began before may write the former state again.
        settled = not await self._older_operation_runs(row)
        try:
            async with asyncio.timeout(TRY_S):
                resolved = await self._state.clusters.resolved(cluster)
                result = await self._state.backend.user_changes.lock_user(resolved, row.user)
        except HeadwayError as error:
            result = UserLockResult(fault=error.first_line)
        except TimeoutError:
            result = UserLockResult(fault=_TOO_SLOW)
        first = row.tries == 0 if result.fault else row.done_at is None
        if result.jobs or first:
            detail = {"jobs": len(result.jobs), "job_ids": list(result.jobs[:MOST_IDS])}
            await self._audit(row, "user.lock", detail, result.fault)
        await self._record(row, result.fault, settled=settled)

    async def _update(self, cluster: ClusterRow, rows: list[DueUserChange]) -> None:
        """Puts users into their teams, and records the results."""
        settled = {row.user: not await self._older_operation_runs(row) for row in rows}
        fault = ""
        found: Mapping[str, UserUpdateResult] = {}
        try:
            async with asyncio.timeout(TRY_S):
                resolved = await self._state.clusters.resolved(cluster)
                found = await self._state.backend.user_changes.update_users(resolved, list(settled))
        except HeadwayError as error:
            fault = error.first_line
        except TimeoutError:
            fault = _TOO_SLOW
        for row in rows:
            result = found.get(row.user, UserUpdateResult(fault=fault))
            first = row.tries == 0 if result.fault else row.done_at is None
            if row.cause == "teams":  # most clusters do not have the team
                first = first and bool(result.changes or row.tries or result.fault)
            if first:
                detail = {"changes": list(result.changes)} if result.changes else {}
                action = "user.unlock" if row.cause == "lock" else "user.teams"
                await self._audit(row, action, detail, result.fault)
            await self._record(row, result.fault, settled=settled[row.user])

    async def _record(self, row: DueUserChange, fault: str, *, settled: bool) -> None:
        """Records the result of a try. `settled` False: it is done again, in case an operation undoes it."""
        locks = self._state.store.user_changes
        if fault:
            words = "a change of a user on a cluster failed; it is retried"
            log.warning(words, cluster=row.cluster, user=row.user, error=fault)
            await locks.record_try(row, error=fault, done_at=row.done_at)
        elif settled:
            await locks.finish(row)
        else:
            await locks.record_try(row, done_at=row.done_at or self._state.clock())

    async def _audit(self, row: DueUserChange, action: str, detail: Mapping[str, Any], fault: str) -> None:
        """Writes the audit line of a try, under the person who caused it: the first failure, the success, and all jobs that
        were cancelled."""
        line = {"user": row.user, "seconds": round(max(0.0, self._state.clock() - row.at), 1), **detail}
        if fault:
            line["error"] = fault[:200]
        result = "failed" if fault else "ok"
        await self._state.store.audit.record(row.person, action, row.cluster, line, result=result)

    async def _older_operation_runs(self, row: DueUserChange) -> bool:
        found = await self._state.store.operations.recent(row.cluster)
        return any(one.state == "running" and (one.started_at or 0.0) <= row.at + RESOLVE_S for one in found)


def _key(row: DueUserChange) -> tuple[str, str, float]:
    return row.cluster, row.user, row.at
