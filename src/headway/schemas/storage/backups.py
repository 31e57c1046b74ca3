"""Request and response models of backups and restores."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel

Passphrase = Annotated[str, Field(min_length=8, max_length=4096)]
# Absolute path on the server's machine
ServerFile = Annotated[str, Field(pattern=r"^/[^\x00-\x1f]*$", max_length=1000)]


class BackupIn(RequestModel):
    """`to`: the folder that the backup is written to. It is created if it does not exist."""

    to: ServerFile
    passphrase: Passphrase


class RestoreIn(RequestModel):
    """Replaces the present cluster of this name, its queue and its accounting. `confirmed` must be true to allow that."""

    path: ServerFile
    passphrase: Passphrase
    confirmed: bool = False


class VerifyIn(RequestModel):
    """A backup to read completely."""

    path: ServerFile
    passphrase: Passphrase


class BackupOut(ResponseModel):
    """A backup file and its contents. Sizes are in bytes."""

    path: str
    cluster: str
    at: float
    bytes: int
    headway: str
    slurm_version: str
    records: int | None = None  # number of Headway's own records; null if the backup was not read completely
    state_files: int | None = None  # number of slurmctld's state files; null if the backup was not read completely
