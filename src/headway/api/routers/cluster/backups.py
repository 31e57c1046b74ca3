"""Backups and restores."""

from __future__ import annotations

from fastapi import APIRouter, Query

from headway.api.auth.dependencies import Admin, State
from headway.api.http.pagination import Page
from headway.schemas.base import API_PREFIX
from headway.schemas.operations import OperationOut
from headway.schemas.storage.backups import BackupIn, BackupOut, RestoreIn, VerifyIn
from headway.services.storage import backups as service

router = APIRouter(prefix=API_PREFIX, tags=["backups"])


@router.post("/clusters/{name}/backup", status_code=202, name="backup")
async def create_backup(name: str, body: BackupIn, state: State, who: Admin) -> OperationOut:
    """Queues a backup. Jobs continue. The operation's `kept` names the file."""
    return await service.start_backup(state, who, name, body)


@router.post("/clusters/{name}/restore", status_code=202, name="restore")
async def restore_backup(name: str, body: RestoreIn, state: State, who: Admin) -> OperationOut:
    """Queues a restore. It is refused at once, and nothing is changed, if the file is not a backup of this cluster or
    the passphrase is wrong."""
    return await service.start_restore(state, who, name, body)


@router.get("/backups")
async def list_backups(state: State, _: Admin, page: Page, folder: str = Query("", max_length=1000)) -> list[BackupOut]:
    """Returns the backups in a folder of the server's machine, the latest first. Without a folder: those in the folders
    to which cluster files schedule backups."""
    return page.cut(await service.list_backups(state, folder), lambda row: (row.at, row.path), newest=True)


@router.post("/backups/verify", name="verify")
async def verify_backup(body: VerifyIn, state: State, _: Admin) -> BackupOut:
    """Reads a backup completely. Refused if it is damaged or the passphrase is wrong."""
    return await service.verify_backup(state, body)
