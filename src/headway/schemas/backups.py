"""Backups, coming back from them, and keys that change."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headway.schemas.base import Ask, Wire

Passphrase = Annotated[str, Field(min_length=8, max_length=4096)]
ServerFile = Annotated[str, Field(pattern=r"^/[^\x00-\x1f]*$", max_length=1000)]  # on the server's machine, absolute


class BackupIn(Ask):
    """`to`: a folder; made where it is not there."""

    to: ServerFile
    passphrase: Passphrase


class RestoreIn(Ask):
    """What a cluster of this name has now, queue and accounting, is replaced: `confirmed` says that a person knows."""

    path: ServerFile
    passphrase: Passphrase
    confirmed: bool = False


class VerifyIn(Ask):
    path: ServerFile
    passphrase: Passphrase


class BackupOut(Wire):
    path: str
    cluster: str
    at: float
    bytes: int
    headway: str
    slurm_version: str
    records: int | None = None  # Headway's own, counted where the backup was read whole
    state_files: int | None = None  # the same, of slurmctld's


class RotateIn(Ask):
    what: Literal["munge", "jwt", "ssh", "database"]


class BenchIn(Ask):
    node: Annotated[str, Field(max_length=100)] = ""  # "" = the head
    mib: Annotated[int, Field(ge=4, le=65_536)] = 256  # written to each volume


class VolumeSpeedOut(Wire):
    """MiB a second from one machine; `error` where it could not be measured."""

    path: str
    write_mib_s: float = 0.0
    read_mib_s: float = 0.0
    checkpoint_mib_s: float = 0.0
    error: str = ""
