"""Encrypts the values of secrets with a key in the server's data folder, so that the database and its copies have no value in
clear."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import secrets as random
from dataclasses import dataclass, field
from pathlib import Path

from headway.domain.access.job_secret import SecretOwner
from headway.errors import Refused
from headway.services.app_state import AppState
from headway.store import JobSecretRow

KEY_FILE = "job-secrets.key"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_FINGERPRINT = "job_secrets.fingerprint"  # name of the server's own secret with the digest of the key in use


@dataclass(frozen=True)
class SecretBox:
    """Seals values with AES-256-GCM. A sealed value opens only for its own cluster, owner and name."""

    key: bytes = field(repr=False)

    def seal(self, cluster: str, owner: SecretOwner, name: str, value: str) -> str:
        """Returns the sealed value as base64."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = random.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self.key).encrypt(nonce, value.encode(), _about(cluster, owner, name))
        return base64.b64encode(nonce + sealed).decode()

    def open(self, row: JobSecretRow) -> str:
        """Returns the value of a stored secret. Raises Refused if this key does not open it."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        data = base64.b64decode(row.sealed)
        nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        try:
            return AESGCM(self.key).decrypt(nonce, sealed, _about(row.cluster, row.secret_owner, row.name)).decode()
        except InvalidTag:
            raise Refused(
                f"the secret {row.name} of {row.secret_owner} on {row.cluster} can't be decrypted with this server's key",
                hint=f"put back the {KEY_FILE} it was stored with, or set the secret again",
            ) from None


def _about(cluster: str, owner: SecretOwner, name: str) -> bytes:
    return f"job secret/{cluster}/{owner.kind}/{owner.name}/{name}".encode()  # no name has a slash


async def open_box(state: AppState) -> SecretBox:
    """Returns the box with this server's key, which is made at the first use. Raises Refused if secrets are stored that
    another key has sealed: two servers on one database need the same key file."""
    path = state.settings.data / KEY_FILE
    box = SecretBox(await asyncio.to_thread(read_key, path))
    mine = hashlib.sha256(b"headway job secrets\0" + box.key).hexdigest()
    if await state.store.secrets.put_if_absent("", _FINGERPRINT, mine) == mine:
        return box
    if await state.store.job_secrets.is_empty():
        await state.store.job_secrets.forget_former()
        await state.store.secrets.set("", _FINGERPRINT, mine)
        return box
    raise Refused(
        f"{path} is not the key that the stored secrets of jobs were encrypted with",
        hint=f"copy {KEY_FILE} from the data folder of the server that stored them; if it is lost, remove all secrets "
        "(headway secret rm) and set them again",
    )


def read_key(path: Path) -> bytes:
    """Returns the key in the file, which is created with mode 600 if it does not exist. Raises Refused if it can't be
    used."""
    try:
        _create_key(path)
        key = path.read_bytes()
    except OSError as error:
        raise Refused(
            f"{path} can't be used: {error.strerror}", hint="it holds the key of the secrets of jobs"
        ) from None
    if len(key) != _KEY_BYTES:
        raise Refused(f"{path} has {len(key)} bytes; a key has {_KEY_BYTES}", hint="put back the file as it was")
    return key


def _create_key(path: Path) -> None:
    """Creates the file with a new key, whole or not at all, unless there is one."""
    if path.exists():
        return
    new = path.with_name(f".{path.name}.{os.getpid()}.{random.token_hex(4)}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(random.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)
        except FileExistsError:  # another server was faster
            return
    finally:
        new.unlink()
