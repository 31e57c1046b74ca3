"""Handlers of backup, restore and key rotation, and the loop that makes scheduled backups."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from headway.domain.cluster import BackupRule, Cluster
from headway.domain.operation import BackupParams, OperationKind, RestoreParams, RotateParams
from headway.errors import HeadwayError, InvalidSpec, Refused
from headway.schemas.clusters import Document
from headway.server.operations.run import OperationRun
from headway.services.app_state import AppState
from headway.services.billing.pricing import prices_of
from headway.services.cluster.backups import queue_backup
from headway.services.cluster.path_policy import path_faults, require_allowed_path
from headway.services.to_schemas import summary_of
from headway.store import ClusterRow, Operation
from headway.web.rendering import day
from headway.web.views.wording import duration

if TYPE_CHECKING:
    from headway.backup.archive import Header

LOOK_S = 20.0
AGAIN_S = 600.0  # seconds until the next try after a failure
LATE_S = 3600.0  # seconds after which an overdue backup is reported
PERSON = "headway"  # the name under which scheduled backups are queued

log = structlog.get_logger("headway.server.backups")


class BackupOperations:
    """Carries out operations of the kinds backup, restore and rotate. `say`: a headway.cluster.context.ReportProgress."""

    def __init__(self, state: AppState, operation: Operation, say: Any) -> None:
        self._state = state
        self._operation = operation
        self._say = say

    async def backup(self) -> tuple[str, ...]:
        """Makes a backup and returns its path. Older ones beyond `keep` are removed."""
        from headway.backup.archive import Header
        from headway.backup.backup import file_of

        state, name = self._state, self._operation.cluster
        row, cluster = await state.clusters.get(name)
        params = BackupParams.from_json(self._operation.params)
        header = Header(**params.header)
        path = file_of(Path(params.to), header)
        await back_up(state, row, cluster, self._say, path, header, await self._key())
        if params.keep:
            stay = await asyncio.to_thread(retain, path.parent, name, params.keep, path)
            if stay:  # still a success: another backup would displace a further good one
                text = f"older ones could not be removed: {'; '.join(stay)}"
                await self._say("backup", text, level="warning", done=True)
                state.live.add_notice(name, f"backups: {text}", level="warning")
        return (str(path),)

    async def restore(self) -> None:
        """Restores the cluster from a backup. After an error the partial restore is discarded."""
        try:
            await self._restore()
        except HeadwayError:
            await self._state.store.cluster_records.discard_partial_restore(
                self._operation.cluster
            )  # if the server was stopped during a restore
            raise

    async def _restore(self) -> None:
        from headway.backup import restore as keep

        state, name = self._state, self._operation.cluster
        params = RestoreParams.from_json(self._operation.params)
        path, key = Path(params.path), await self._key()
        await self._say("proof", "is being read")
        kept = await asyncio.to_thread(keep.read_contents, path, key)
        await keep.require_matching_uids(name, state.store, kept)
        document = Document.model_validate(kept.about["document"])
        resolved = await state.clusters.resolve(document)
        faults = await path_faults(state, resolved)
        if faults:
            raise InvalidSpec(faults)
        old, there = kept.proof.header.slurm_version, state.clusters.stored_slurm_version(resolved.cluster, None)
        if there not in ("", old) and await state.backend.lifecycle.machines(resolved.cluster):
            raise Refused(
                f"{name} runs Slurm {there} and this backup is of {old}: machines of one version can't use the other",
                hint=f"headway down {name}, then restore again",
            )
        await self._say("proof", f"{kept.proof.bytes} bytes are complete", done=True)
        count = await keep.restore_records(name, state.store, path, key, kept)
        await self._say("records", f"{count} of Headway's own records are restored", done=True)
        cluster = (
            await state.clusters.resolve(document)
        ).cluster  # resolved again, with the datasets from the restored records
        if cluster.provider.volumes_on_server:
            await self._datasets(cluster)
        owner = str(kept.about.get("owner") or "")
        await state.store.clusters.save(
            name, document.model_dump(), summary=summary_of(cluster), state="changing", owner=owner
        )
        await state.store.prices.record(
            name, prices_of(cluster, await state.store.prices.of_cluster(name), state.clock())
        )
        state.live.notify_row_changed(name)
        await state.forget(name)  # open connections use the old keys
        await state.backend.backups.restore(cluster, self._say, path, key, params.ref)
        await state.store.cap_refills.revert_to(name, kept.proof.header.at)

    async def _datasets(self, cluster: Cluster) -> None:
        """Creates the folders of all datasets, because machines mount them, even if no backup could restore their files."""
        store, library = self._state.store, self._state.clusters.dataset_library(cluster)
        versions = await store.datasets.versions(cluster.name)
        for name in {one.name for one in versions}:
            await asyncio.to_thread(library.ready, name)
        lost = [one.label for one in versions if not (library.folder(one.name) / str(one.number)).is_dir()]
        if lost:
            text = f"the files of {', '.join(lost)} are missing: add the same ones again with headway dataset add"
            await self._say("datasets", text, level="warning", done=True)

    async def rotate(self) -> None:
        """Replaces a key of the cluster."""
        state, name = self._state, self._operation.cluster
        params = RotateParams.from_json(self._operation.params)
        _, cluster = await state.clusters.get(name)

        async def begins() -> None:
            await state.store.clusters.save(name, state="changing")

        try:
            await state.backend.backups.rotate_key(cluster, self._say, params.what, params.ref, begins)
        finally:
            await state.forget(name)  # the head may have the new key already, even after an error

    async def _key(self) -> bytes:
        """Returns the encryption key stored for this operation. Raises Refused if it is gone."""
        have = await self._state.store.secrets.of_cluster(self._operation.cluster)
        value = have.get(self._operation.secret)
        if value is None:
            raise Refused("the key of this operation no longer exists", hint="ask for it again")
        return base64.b64decode(value)


async def back_up_cluster(run: OperationRun) -> tuple[str, ...]:
    """Makes a backup and returns its path."""
    return await BackupOperations(run.state, run.operation, run.say).backup()


async def restore_cluster(run: OperationRun) -> tuple[str, ...]:
    """Restores a cluster from a backup."""
    await BackupOperations(run.state, run.operation, run.say).restore()
    return ()


async def rotate_key(run: OperationRun) -> tuple[str, ...]:
    """Replaces a key of a cluster."""
    await BackupOperations(run.state, run.operation, run.say).rotate()
    return ()


async def back_up(
    state: AppState, row: ClusterRow, cluster: Cluster, say: Any, path: Path, header: Header, key: bytes
) -> None:
    """Writes a backup to `path` and verifies it by reading it back. Raises the errors of headway.backup.backup.back_up."""
    about = {"document": dict(row.document), "owner": row.owner, "created_at": row.created_at}
    began = time.monotonic()
    await state.backend.backups.back_up(cluster, about, say, path, header, key)
    await say("backup", str(path), done=True, seconds=time.monotonic() - began)


def retain(folder: Path, cluster: str, keep: int, made: Path) -> tuple[str, ...]:
    """Removes old backups of the cluster in this folder. `keep` are kept: the one just made (`made`) and the most
    recent others; the most recent one of another Slurm version is kept as well. Backups may carry later dates than
    `made` if a clock was ahead. Returns one message for each that could not be removed."""
    from headway.backup.archive import list_archives

    stay = []
    try:
        rows = [(path, header) for path, header, _ in list_archives(folder) if header.cluster == cluster]
    except Refused as error:
        return (error.message,)
    now = {header.slurm_version for path, header in rows if path == made}
    # to return to the previous Slurm version
    back = next((path for path, header in rows if now and header.slurm_version not in now), None)
    others = [path for path, _ in rows if path not in (made, back)]
    for path in others[max(0, keep - 1) :]:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            stay.append(f"{path.name}: {error.strerror or error}")
    return tuple(stay)


class BackupSchedule:
    """Queues a backup of each cluster that has `backup` in its file, when it is due."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause
        self._refused: dict[str, float] = {}  # cluster -> when queuing a backup last failed
        self._seen: dict[str, float] = {}  # cluster -> when this server first saw that its file wants backups
        self._told: dict[str, float] = {}  # cluster -> when a missing backup was last reported

    async def run(self) -> None:
        """Checks all clusters every LOOK_S seconds, until cancelled."""
        while True:
            for row in await self._rows():
                await self._look(row)
            await self._pause(LOOK_S)

    async def _rows(self) -> tuple[ClusterRow, ...]:
        try:
            return await self._state.store.clusters.all()
        except Exception as error:  # the database may be unreachable for a while
            log.warning("clusters", error=str(error))
            return ()

    async def _look(self, row: ClusterRow) -> None:
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
                await self._ask(name, cluster.backup)
            await self._tell(name, cluster.backup, busy)
        except HeadwayError as error:
            self._refused[name] = state.clock()
            log.warning("scheduled backup", cluster=name, error=error.message)
            state.live.add_notice(name, f"the scheduled backup can't be made: {error.message}", level="error")
        except Exception as error:  # the database may be unreachable for a while
            log.warning("scheduled backup", cluster=name, error=str(error))

    async def _ask(self, name: str, rule: BackupRule) -> None:
        """Queues a backup if it is due. After a failure it is due again after AGAIN_S seconds at most."""
        state, now = self._state, self._state.clock()
        last = await state.store.operations.latest_scheduled_backup(name)
        if last is not None and not last.finished:
            return
        due = 0.0
        # otherwise the clock was ahead at that time: a backup may be due now
        if last is not None and last.created_at <= now:
            due = last.created_at + (rule.every_s if last.state == "done" else min(rule.every_s, AGAIN_S))
        if now < due or 0 <= now - self._refused.get(name, float("-inf")) < AGAIN_S:
            return
        folder = require_allowed_path(state, rule.to)
        passphrase = await asyncio.to_thread(passphrase_of, Path(rule.key_file))
        ref = f"scheduled-{due:.0f}"  # another server on this database computes the same reference
        await queue_backup(state, name, PERSON, folder, passphrase, keep=rule.keep, ref=ref)

    async def _tell(self, name: str, rule: BackupRule, busy: Operation | None) -> None:
        """Adds a notice when there has been no backup for too long, once per backup interval."""
        state, now = self._state, self._state.clock()
        last, done = (
            await state.store.operations.latest_scheduled_backup(name),
            await state.store.operations.latest_scheduled_backup(name, "done"),
        )
        seen = self._seen[name] = min(self._seen.get(name, now), now)
        since = done.created_at if done and done.created_at <= now else seen
        told = self._told.get(name, float("-inf"))
        told = told if told <= now else float("-inf")
        if (last is not None and not last.finished) or now <= max(since + LATE_S, told) + rule.every_s:
            return
        self._told[name] = now
        when = f"since {day(done.created_at)}" if done else "yet"
        why = (
            f"{'an' if busy.kind is OperationKind.APPLY else 'a'} {busy.kind} is under way"
            if busy
            else "the last ones failed"
        )
        text = f"there is no backup of it {when}, and the file asks for one every {duration(rule.every_s)}: {why}"
        state.live.add_notice(name, text, level="error")


def passphrase_of(file: Path) -> str:
    """Returns the first line of a key file on the server's machine. Raises Refused."""
    try:
        first = file.read_text().strip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} can't be read: {error}", hint="backup.key_file names a file with a passphrase") from None
    if not first or len(first[0]) < 8:
        raise Refused(f"{file} holds no passphrase of 8 characters or more", hint="head -c 32 /dev/urandom | base64")
    return first[0]
