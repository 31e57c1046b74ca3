"""backup and secrets: what is kept, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from headway.catalog.providers import PROVIDERS
from headway.catalog.releases import IMAGES
from headway.clusterfile.models.hosts import ServerPath
from headway.validation.field_types import (
    Part,
    Seconds,
)

if TYPE_CHECKING:
    ProviderName = str
    ImageName = str
else:  # type checkers do not accept a computed Literal
    ProviderName = Literal[tuple(PROVIDERS)]
    ImageName = Literal[tuple(IMAGES)]


class BackupPart(Part):
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


class KeyPart(Part):
    """A key that you provide."""

    file: ServerPath | None = Field(None, description="File on the server's machine with the key.")
    command: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None,
        min_length=1,
        description="Program in /etc/headway/commands on the server's machine that prints the key, and its arguments.",
        examples=[["vault-munge", "secret/lab"]],
    )


class SecretsPart(Part):
    """Sources of secret keys."""

    munge: KeyPart | None = Field(None, description="MUNGE key, 32 to 1024 bytes (default: Headway creates one).")
