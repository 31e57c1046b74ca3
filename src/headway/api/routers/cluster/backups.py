"""Backups, coming back from them, and keys that change. What is long is an operation; a request writes its row.

A passphrase is kept nowhere: what is kept for the time of an operation is the key that it and the backup's own salt make."""

from __future__ import annotations

import asyncio
import base64
import secrets as random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Query

from headway import __version__
from headway.api.auth.dependencies import Admin, State
from headway.api.http.pagination import Page
from headway.errors import Conflict, NeedsConfirmation, Refused
from headway.schemas.backups import BackupIn, BackupOut, RestoreIn, RotateIn, VerifyIn
from headway.schemas.clusters import OperationOut
from headway.services.authorization import write_audit_line
from headway.services.cluster.path_policy import require_allowed_path
from headway.services.cluster.planning import announce_operation
from headway.services.context import AppState
from headway.services.mappers import operation_out
from headway.store import Operation

if TYPE_CHECKING:
    from headway.backup.archive import Header

router = APIRouter(tags=["backups"])


@router.post("/clusters/{name}/backup", status_code=202)
async def backup(name: str, ask: BackupIn, state: State, who: Admin) -> OperationOut:
    """Queues a backup: jobs run on meanwhile. The operation's `kept` names the file."""
    folder = require_allowed_path(state, ask.to)
    operation = await queue_backup(state, name, who.person, folder, ask.passphrase, deed=who.idempotency_key)
    assert operation is not None
    await write_audit_line(state, who, "backup", name, operation=operation.id, to=str(folder))
    return operation_out(operation)


@router.post("/clusters/{name}/restore", status_code=202)
async def restore(name: str, ask: RestoreIn, state: State, who: Admin) -> OperationOut:
    """Queues bringing a cluster back. Refused at once, with nothing touched, when the file is none of its backups or the
    passphrase is wrong."""
    from headway.backup import archive

    path = require_allowed_path(state, ask.path)
    header = await asyncio.to_thread(archive.read_header, path)
    if header.cluster != name:
        raise Refused(
            f"{path} is a backup of the cluster {header.cluster}, not of {name}",
            hint=f"headway restore {header.cluster} --from {path}",
        )
    key = await asyncio.to_thread(archive.key_of, ask.passphrase, header.salt)
    await asyncio.to_thread(archive.opens, path, key)
    row = await state.store.clusters.get(name)
    if row is not None and not ask.confirmed:
        raise NeedsConfirmation(
            f"queue and accounting of {name} are replaced by those of the backup", hint="headway restore with --yes"
        )
    ref = random.token_hex(8)
    params = {"path": str(path), "ref": ref}
    operation = await state.store.operations.enqueue(
        name, "restore", who.person, params=params, secret=_text(key), key=who.idempotency_key
    )
    announce_operation(state, operation)
    await write_audit_line(state, who, "restore", name, operation=operation.id, path=str(path))
    return operation_out(operation)


@router.get("/backups")
async def backups(state: State, _: Admin, page: Page, folder: str = Query("", max_length=1000)) -> list[BackupOut]:
    """Backups in a folder of the server's machine, the latest first, as they say themselves. Without a folder: in those that
    clusters' files have them written to."""
    from headway.backup import archive

    folders = [folder] if folder else await _scheduled(state)
    found = [
        await asyncio.to_thread(archive.found, require_allowed_path(state, one), missing_ok=not folder)
        for one in folders
    ]
    rows = [_out(path, header, size) for part in found for path, header, size in part]
    return page.cut(rows, lambda one: (one.at, one.path), newest=True)


async def _scheduled(state: AppState) -> list[str]:
    """Raises Refused where no file asks for backups."""
    files = [row.document.get("spec", {}).get("backup") or {} for row in await state.store.clusters.all()]
    found = sorted({str(one["to"]) for one in files if one.get("to")})
    if not found:
        raise Refused("no cluster's file asks for backups, so there is no folder to look in", hint="name one: --in DIR")
    return found


@router.post("/backups/verify")
async def verify(ask: VerifyIn, state: State, _: Admin) -> BackupOut:
    """Reads all of a backup. Refused when it is not whole or the passphrase is another."""
    from headway.backup import archive
    from headway.backup.backup import prove

    path = require_allowed_path(state, ask.path)
    header = await asyncio.to_thread(archive.read_header, path)
    key = await asyncio.to_thread(archive.key_of, ask.passphrase, header.salt)
    proof = await asyncio.to_thread(prove, path, key)
    found = _out(path, header, proof.bytes)
    return found.model_copy(update={"records": proof.records, "state_files": proof.state_files})


@router.post("/clusters/{name}/secrets/rotate", status_code=202)
async def rotate(name: str, ask: RotateIn, state: State, who: Admin) -> OperationOut:
    """Queues another key in a key's place. No job is lost by it."""
    _, cluster = await state.cluster(name)
    if ask.what == "database":
        raise Refused(
            f"the database of {name} has no password to change: it knows slurmdbd by its system user, on its socket alone",
            hint="headway secrets rotate munge, jwt or ssh",
        )
    if ask.what == "munge" and cluster.munge_key is not None:
        raise Refused(
            f"the MUNGE key of {name} comes from {cluster.munge_key.words}, as its file says",
            hint="change it there, then headway apply",
        )
    if ask.what == "ssh" and not cluster.provider.creates_machines:
        raise Refused(
            f"{name} is signed in to with keys of your own inventory", hint="change them on the machines and in hosts"
        )
    params = {"what": ask.what, "ref": random.token_hex(8)}
    operation = await state.store.operations.enqueue(name, "rotate", who.person, params=params, key=who.idempotency_key)
    announce_operation(state, operation)
    await write_audit_line(state, who, "secrets.rotate", name, operation=operation.id, what=ask.what)
    return operation_out(operation)


async def queue_backup(
    state: AppState,
    name: str,
    person: str,
    folder: Path,
    passphrase: str,
    *,
    keep: int = 0,
    ref: str = "",
    deed: str = "",
) -> Operation | None:
    """`keep`: so many of the cluster's backups stay in the folder; 0: all. `ref`: names this backup among servers that may
    think of it at once; None when another did. `deed`: of the request that asks for it."""
    from headway.backup import archive

    _, cluster = await state.cluster(name)
    header = archive.Header(name, state.clock(), __version__, cluster.slurm_version, archive.new_salt())
    key = await asyncio.to_thread(archive.key_of, passphrase, header.salt)
    ref = ref or random.token_hex(8)
    params: dict[str, Any] = {"to": str(folder), "ref": ref, "header": vars(header), "keep": keep}
    try:
        operation = await state.store.operations.enqueue(
            name, "backup", person, params=params, secret=_text(key), key=deed
        )
    except Conflict:
        return None
    announce_operation(state, operation)
    return operation


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
