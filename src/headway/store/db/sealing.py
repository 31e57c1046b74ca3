"""Encrypts secret values with a key in a file, so that the database and its copies have no secret in clear.

The database has the digest of the key in use. A rotation (`store.key_rotation`) writes the new key to a file that is named by
its digest, encrypts all values with it and changes the digest in one transaction, and then gives the file the usual name. So at
each moment a file has the key of the database, and `find_key` finds it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import secrets as random
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.errors import Refused
from headway.private_files import create_private
from headway.store.db import cluster_schema as t
from headway.store.db.server_values import ServerValueStore
from headway.store.db.transactions import Database

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_FILE = "secrets.key"
DIGEST = "secrets_key_digest"  # name of the shared value with the digest of the key in use
_KEY_BYTES = 32
_NONCE_BYTES = 12
_PUT_BACK = (
    "put back your copy of the file, or that of another server on this database; if it is lost, start with a new state folder "
    "and database, and restore the clusters from their backups"
)


class SecretBox:
    """Seals values with AES-256-GCM. A sealed value opens only under the name that it was sealed for. `folder` has the file of
    the key, which another server may rotate."""

    def __init__(self, key: bytes, folder: Path) -> None:
        self.folder = folder
        self.key = key
        self._former: list[bytes] = []  # of values that were read before a rotation

    def use(self, key: bytes) -> None:
        """Takes the key of a rotation."""
        if key != self.key:
            self._former = [self.key, *self._former]
            self.key = key

    async def seal(self, db: AsyncConnection, name: str, value: str) -> str:
        """Returns the value sealed with the key of the database, as base64. `db` is the write transaction that stores it:
        while it is open no other server rotates the key. Raises Refused if the key is in no file."""
        digest = await read_digest(db)
        if key_digest(self.key) != digest:
            self.use(find_key(self.folder, digest))
        return seal(self.key, name, value)

    def open(self, name: str, sealed: str) -> str:
        """Returns the value. Raises Refused if it was changed, or sealed for another name or with another key."""
        from cryptography.exceptions import InvalidTag

        for key in (self.key, *self._former):
            with contextlib.suppress(InvalidTag):
                return unseal(key, name, sealed)
        for path in _key_files(self.folder):  # another server has rotated the key
            with contextlib.suppress(InvalidTag, OSError, ValueError):
                key = path.read_bytes()
                value = unseal(key, name, sealed)
                self.use(key)
                return value
        raise Refused(
            f"{name} in the server's database can't be decrypted with this server's {KEY_FILE}",
            hint="the database was changed by something other than Headway: see docs/howto/keys.md#a-secret-cant-be-decrypted",
        )


def seal(key: bytes, name: str, value: str) -> str:
    """Returns the sealed value as base64."""
    nonce = random.token_bytes(_NONCE_BYTES)
    return base64.b64encode(nonce + _cipher(key).encrypt(nonce, value.encode(), name.encode())).decode()


def unseal(key: bytes, name: str, sealed: str) -> str:
    """Returns the value. Raises InvalidTag, and ValueError if the key has no length of a key."""
    data = base64.b64decode(sealed)
    return _cipher(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode()).decode()


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def key_digest(key: bytes) -> str:
    """Returns the digest by which the database knows a key."""
    return hashlib.sha256(b"headway secrets\0" + key).hexdigest()


def new_key(folder: Path) -> bytes:
    """Returns a new key, which is in a file named by its digest. Raises OSError."""
    key = random.token_bytes(_KEY_BYTES)
    create_private(_file_of(folder, key_digest(key)), key)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)  # the file must be there after a power failure, because the database will need it
    finally:
        os.close(handle)
    return key


async def read_digest(db: AsyncConnection) -> str:
    """Returns the digest of the key that the database's secrets are sealed with."""
    values = t.server_values
    return str((await db.execute(select(values.c.value).where(values.c.name == DIGEST))).scalar_one())


async def open_box(database: Database, folder: Path) -> SecretBox:
    """Returns the box with the key in this folder, which is made with the database. Raises Refused if the file can't be used
    or has another key than the one that the database's secrets were sealed with."""
    values = ServerValueStore(database)
    digest = await values.get(DIGEST)
    if not digest:
        key = await asyncio.to_thread(_make_first, folder)
        digest = await values.put_if_absent(DIGEST, key_digest(key))
    while True:
        try:
            return SecretBox(await asyncio.to_thread(find_key, folder, digest), folder)
        except Refused:
            former, digest = digest, await values.get(DIGEST)
            if digest == former:  # otherwise another server has just rotated the key
                raise


def find_key(folder: Path, digest: str) -> bytes:
    """Returns the key with this digest, whose file gets the usual name if a rotation ended before it had. Raises Refused if no
    file has the key."""
    path, new = folder / KEY_FILE, _file_of(folder, digest)
    fault = f"{path} is missing: the secrets in the database are encrypted with it"
    try:
        # The new file first: a process that renames it meanwhile leaves the key under the usual name.
        for file in (new, path):
            with contextlib.suppress(FileNotFoundError):
                key = file.read_bytes()
                if key_digest(key) == digest:
                    name_as_usual(folder, digest)
                    return key
                fault = f"{path} is not the key that the secrets in the database are encrypted with"
                if len(key) != _KEY_BYTES:
                    fault = f"{path} has {len(key)} bytes; a key has {_KEY_BYTES}"
    except OSError as error:
        raise _unusable(path, error) from None
    raise Refused(fault, hint=_PUT_BACK)


def name_as_usual(folder: Path, digest: str) -> None:
    """Gives the file of a rotation's key the usual name; the former key's file is replaced."""
    with contextlib.suppress(FileNotFoundError):  # another server has done it
        _file_of(folder, digest).replace(folder / KEY_FILE)


def remove_unused(folder: Path) -> None:
    """Removes files of rotations that ended before they changed the database. No other rotation may run."""
    for file in _key_files(folder):
        if file.name != KEY_FILE:
            file.unlink(missing_ok=True)


def _key_files(folder: Path) -> list[Path]:
    """Returns the files that may have the key, the usual one last: a file that is renamed meanwhile is there."""
    return [*sorted(folder.glob(f"{KEY_FILE}.*")), folder / KEY_FILE]


def _file_of(folder: Path, digest: str) -> Path:
    return folder / f"{KEY_FILE}.{digest[:16]}"


def _make_first(folder: Path) -> bytes:
    """Returns the key in the file, which is created with mode 600 if it does not exist."""
    path = folder / KEY_FILE
    try:
        if not path.exists():
            create_private(path, random.token_bytes(_KEY_BYTES))
        key = path.read_bytes()
    except OSError as error:
        raise _unusable(path, error) from None
    if len(key) != _KEY_BYTES:
        raise Refused(f"{path} has {len(key)} bytes; a key has {_KEY_BYTES}", hint=_PUT_BACK)
    return key


def _unusable(path: Path, error: OSError) -> Refused:
    return Refused(
        f"{path} can't be used: {error.strerror}",
        hint="it holds the key of the secrets in the database; let the server's user read and write it and its folder",
    )
