"""Queues the scheduled backups of all clusters, and reports overdue ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from headway.backup.overdue import RETRY_S, due_at, is_overdue
from headway.backup.passphrase_file import read_passphrase
from headway.domain.cluster import BackupRule
from headway.domain.operation_kinds import OperationKind
from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.services.cluster.operation_view import without_server_paths
from headway.services.storage.backups import queue_backup
from headway.services.storage.path_policy import require_allowed_path
from headway.store import ClusterRow, Operation
from headway.web.rendering import day
from headway.web.views.state_wording import duration

LOOK_S = 20.0
PERSON = "headway"  # the name under which scheduled backups are queued
log = structlog.get_logger("headway.server.backups")


class BackupSchedule:
    """Queues a backup of each cluster that has `backup` in its file, when it is due."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause
        self._refused: dict[str, float] = {}  # cluster -> when queuing a backup last failed
        self._seen: dict[str, float] = {}  # cluster -> when this server first read a file of it with scheduled backups
        self._warned_at: dict[str, float] = {}  # cluster -> when a missing backup was last reported

    async def run(self) -> None:
        """Checks all clusters every LOOK_S seconds, until cancelled."""
        while True:
            for row in await self._rows():
                await self._check(row)
            await self._pause(LOOK_S)

    async def _rows(self) -> tuple[ClusterRow, ...]:
        try:
            return await self._state.store.clusters.all()
        except Exception as error:  # the database may be unreachable for a while
            log.warning("clusters", error=str(error))
            return ()

    async def _check(self, row: ClusterRow) -> None:
        """Queues a backup of one cluster if it is due, and reports a missing one."""
        state, name = self._state, row.name
        if not row.document.get("spec", {}).get("backup"):
            return
        try:
            cluster = await state.clusters.resolved(row)
            if cluster.backup is None:
                return
            busy = await state.store.operations.active(name)  # a rollout may wait for days, and gives way to a backup
            if busy is None or (busy.kind, busy.state) == (OperationKind.ROLL, "running"):
                await self._queue_if_due(name, cluster.backup)
            await self._warn_if_overdue(name, cluster.backup, busy)
        except HeadwayError as error:
            self._refused[name] = state.clock()
            log.warning("scheduled backup", cluster=name, error=error.message)
            spec = row.document["spec"]["backup"]
            folders = [Path(str(spec[key])).parent for key in ("to", "key_file") if key in spec]
            reason = without_server_paths(error.message, *folders)
            state.live.add_recent_event(name, f"the scheduled backup can't be made: {reason}", level="error")
        except Exception as error:  # the database may be unreachable for a while
            log.warning("scheduled backup", cluster=name, error=str(error))

    async def _queue_if_due(self, name: str, rule: BackupRule) -> None:
        """Queues a backup if it is due."""
        state, now = self._state, self._state.clock()
        last = await state.store.operations.latest_scheduled_backup(name)
        if last is not None and not last.finished:
            return
        due = due_at(last, rule.every_s, now)
        if now < due or 0 <= now - self._refused.get(name, float("-inf")) < RETRY_S:
            return
        folder = require_allowed_path(state, rule.to)
        passphrase = await asyncio.to_thread(read_passphrase, Path(rule.key_file))
        ref = f"scheduled-{due:.0f}"  # another server on this database computes the same reference
        await queue_backup(state, name, PERSON, folder, passphrase, keep=rule.keep, ref=ref)

    async def _warn_if_overdue(self, name: str, rule: BackupRule, busy: Operation | None) -> None:
        """Adds a recent event when there has been no backup for too long, once per backup interval."""
        state, now = self._state, self._state.clock()
        last, done = (
            await state.store.operations.latest_scheduled_backup(name),
            await state.store.operations.latest_scheduled_backup(name, "done"),
        )
        seen = self._seen[name] = min(self._seen.get(name, now), now)
        since = done.created_at if done and done.created_at <= now else seen
        told_at = self._warned_at.get(name, float("-inf"))
        if (last is not None and not last.finished) or not is_overdue(since, told_at, rule.every_s, now):
            return
        self._warned_at[name] = now
        when = f"since {day(done.created_at)}" if done else "yet"
        why = (
            f"{'an' if busy.kind is OperationKind.APPLY else 'a'} {busy.kind} is under way"
            if busy
            else "the last ones failed"
        )
        text = f"there is no backup of it {when}, and the file requires one every {duration(rule.every_s)}: {why}"
        state.live.add_recent_event(name, text, level="error")
