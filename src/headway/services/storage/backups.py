"""Backups and restores: requests check their input and queue an operation.

Passphrases are not stored. While an operation runs, its row holds the key derived from the passphrase and the
backup's salt."""

from __future__ import annotations

import asyncio
import base64
import secrets as random
from pathlib import Path
from typing import TYPE_CHECKING

from headway import __version__
from headway.domain.operation_kinds import BackupParams, RestoreParams
from headway.errors import Conflict, NeedsConfirmation, Refused
from headway.schemas.operations import OperationOut
from headway.schemas.storage.backups import BackupIn, BackupOut, RestoreIn, VerifyIn
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.cluster.operations import queue_operation
from headway.services.storage.path_policy import require_allowed_path
from headway.store import Operation

if TYPE_CHECKING:
    from headway.backup.archive import Header


async def start_backup(state: AppState, who: Principal, name: str, request: BackupIn) -> OperationOut:
    """Queues a backup; jobs continue. The operation's `kept` names the file."""
    folder = require_allowed_path(state, request.to)
    operation = await queue_backup(
        state, name, who.person, folder, request.passphrase, idempotency_key=who.idempotency_key
    )
    assert operation is not None
    await write_audit_line(state, who, "backup", name, operation=operation.id, to=str(folder))
    return operation_out(operation)


async def start_restore(state: AppState, who: Principal, name: str, request: RestoreIn) -> OperationOut:
    """Queues a restore. Raises Refused if the file is not a backup of this cluster or the passphrase is wrong, and
    NeedsConfirmation if the cluster exists; SignInAgain, also for a cluster that is down, whose data is replaced."""
    from headway.backup import archive, restore_checks

    who.require_recent_sign_in(state.clock(), f"restore {name} from a backup")
    path = require_allowed_path(state, request.path)
    header = await asyncio.to_thread(archive.read_header, path)
    restore_checks.require_backup_of(name, path, header)
    key = await asyncio.to_thread(archive.key_of, request.passphrase, header.salt)
    await asyncio.to_thread(archive.verify_key, path, key)
    row = await state.store.clusters.get(name)
    if row is not None and not request.confirmed:
        raise NeedsConfirmation(
            f"queue and accounting of {name} are replaced by those of the backup", hint="headway restore with --yes"
        )
    params = RestoreParams(str(path), random.token_hex(8))
    operation = await queue_operation(state, name, who.person, params, secret=_text(key), key=who.idempotency_key)
    await write_audit_line(state, who, "restore", name, operation=operation.id, path=str(path))
    return operation_out(operation)


async def list_backups(state: AppState, folder: str) -> list[BackupOut]:
    """Returns the backups in a folder of the server's machine; without one, in the folders to which cluster files
    schedule backups."""
    from headway.backup import archive

    folders = [folder] if folder else await _scheduled_folders(state)
    found = [
        await asyncio.to_thread(archive.list_archives, require_allowed_path(state, root), missing_ok=not folder)
        for root in folders
    ]
    return [_out(path, header, size) for part in found for path, header, size in part]


async def _scheduled_folders(state: AppState) -> list[str]:
    """Returns the folders to which cluster files write backups. Raises Refused if there are none."""
    files = [row.document.get("spec", {}).get("backup") or {} for row in await state.store.clusters.all()]
    found = sorted({str(one["to"]) for one in files if one.get("to")})
    if not found:
        raise Refused(
            "no cluster file schedules backups, so there is no default folder", hint="name a folder: --in DIR"
        )
    return found


async def verify_backup(state: AppState, request: VerifyIn) -> BackupOut:
    """Reads a backup completely and returns its description. Raises Refused if it is damaged or the passphrase is
    wrong."""
    from headway.backup import archive
    from headway.backup.verify import verify_backup

    path = require_allowed_path(state, request.path)
    header = await asyncio.to_thread(archive.read_header, path)
    key = await asyncio.to_thread(archive.key_of, request.passphrase, header.salt)
    proof = await asyncio.to_thread(verify_backup, path, key)
    found = _out(path, header, proof.bytes)
    return found.model_copy(update={"records": proof.records, "state_files": proof.state_files})


async def queue_backup(
    state: AppState,
    name: str,
    person: str,
    folder: Path,
    passphrase: str,
    *,
    keep: int = 0,
    ref: str = "",
    idempotency_key: str = "",
) -> Operation | None:
    """Queues a backup and returns its operation. `keep` is how many of the cluster's backups stay in the folder; 0
    keeps all. `ref` names a scheduled backup, so that only one of several servers queues it: returns None if another
    server did."""
    from headway.backup import archive

    _, cluster = await state.clusters.get(name)
    header = archive.Header(name, state.clock(), __version__, cluster.slurm_version, archive.new_salt())
    key = await asyncio.to_thread(archive.key_of, passphrase, header.salt)
    ref = ref or random.token_hex(8)
    params = BackupParams(str(folder), ref, vars(header), keep)
    try:
        return await queue_operation(state, name, person, params, secret=_text(key), key=idempotency_key)
    except Conflict:
        return None


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def _out(path: Path, header: Header, size: int) -> BackupOut:
    return BackupOut(
        path=str(path),
        cluster=header.cluster,
        at=header.at,
        bytes=size,
        headway=header.headway,
        slurm_version=header.slurm_version,
    )
