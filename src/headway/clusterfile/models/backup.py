"""backup and secrets: what is kept, and the keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.clusterfile.models.hosts import ServerPath
from headway.validation.field_types import FileSection, Seconds


class BackupPart(FileSection):
    """Scheduled backups, made while jobs run."""

    to: ServerPath = Field(description="Folder on the server's machine.", examples=["/backup/headway"])
    every: Seconds = Field(
        86400, description="Interval, in a Slurm time format (default: once a day).", examples=["12:00:00"]
    )
    keep: int = Field(14, ge=1, le=10_000, description="Number of the cluster's backups to keep in the folder.")
    key_file: ServerPath = Field(
        description="File on the server's machine whose first line is the passphrase.",
        examples=["/etc/headway/backup.key"],
    )


class KeyPart(FileSection):
    """A key that you provide."""

    file: ServerPath | None = Field(None, description="File on the server's machine with the key.")
    command: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Program in /etc/headway/commands on the server's machine that prints the key, and its arguments.",
        examples=[["vault-munge", "secret/lab"]],
    )


class SecretsPart(FileSection):
    """Sources of secret keys."""

    munge: KeyPart | None = Field(None, description="MUNGE key, 32 to 1024 bytes (default: Headway creates one).")
