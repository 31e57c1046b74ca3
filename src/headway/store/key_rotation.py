"""Replaces the key that the secrets in the database are encrypted with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Table, select, update
from sqlalchemy.engine import Row

from headway.domain.access.job_secret import OwnerKind, SecretOwner
from headway.errors import Refused
from headway.store.clusters import job_secrets, secrets
from headway.store.db import access_schema, sealing
from headway.store.db import cluster_schema as t
from headway.store.db.transactions import Database, StorePart
from headway.store.jobs import notebooks

# All tables with sealed values, and the name that each row's value is sealed for.
SEALED: Mapping[Table, Callable[[Row[Any]], str]] = {
    t.secrets: lambda row: secrets.sealed_for(row.cluster, row.name),
    access_schema.job_secrets: lambda row: _job_secret(row),
    access_schema.former_job_secrets: lambda row: _job_secret(row),
    t.notebooks: lambda row: notebooks.sealed_for(row.id),
}


def _job_secret(row: Row[Any]) -> str:
    return job_secrets.sealed_for(row.cluster, SecretOwner(OwnerKind(row.kind), row.owner), row.name)


class KeyRotationStore(StorePart):
    """Rotates the key of a SecretBox."""

    def __init__(self, database: Database, box: sealing.SecretBox) -> None:
        super().__init__(database)
        self._box = box

    @property
    def file(self) -> Path:
        """Returns the file of the key."""
        return self._box.folder / sealing.KEY_FILE

    async def rotate(self) -> int:
        """Encrypts all secrets with a new key. Returns their number. It can be killed at any line: the database is changed in
        one transaction, and the next start finds the key that it has then. Raises Refused if a secret can't be decrypted or
        the new key can't be stored; then the former key stays."""
        folder = self._box.folder
        async with self._database.write() as db:  # one at a time among all servers
            key = await asyncio.to_thread(sealing.find_key, folder, await sealing.read_digest(db))
            try:
                await asyncio.to_thread(sealing.remove_unused, folder)
                new = await asyncio.to_thread(sealing.new_key, folder)
            except OSError as error:
                raise Refused(
                    f"a new key can't be stored in {folder}: {error.strerror}; the former one stays",
                    hint="give the folder free space, and let the server's user write it",
                ) from None
            count = 0
            for table, name_of in SEALED.items():
                for row in (await db.execute(select(table))).all():
                    own = [column == getattr(row, column.name) for column in table.primary_key]
                    sealed = _with_new_key(key, new, name_of(row), row.sealed)
                    await db.execute(update(table).where(*own).values(sealed=sealed))
                    count += 1
            values = t.server_values
            digest = sealing.key_digest(new)
            await db.execute(update(values).where(values.c.name == sealing.DIGEST).values(value=digest))
        self._box.use(new)
        await asyncio.to_thread(sealing.name_as_usual, folder, digest)
        return count


def _with_new_key(key: bytes, new: bytes, name: str, sealed: str) -> str:
    from cryptography.exceptions import InvalidTag

    try:
        return sealing.seal(new, name, sealing.unseal(key, name, sealed))
    except InvalidTag:
        raise Refused(
            f"{name} in the server's database can't be decrypted, so the key is not replaced",
            hint="see docs/howto/keys.md#a-secret-cant-be-decrypted",
        ) from None
