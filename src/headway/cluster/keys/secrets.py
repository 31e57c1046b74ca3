"""A cluster's secrets: created once, stored in the server's store, never shown."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets as random
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from headway.domain.cluster import Cluster
from headway.errors import Refused
from headway.store import Store
from headway.transport.process import run_process

# Secrets that become files on machines, with their number of random bytes. They are stored as base64.
FILE_SECRETS = {"munge_key": 1024, "jwt_key": 32}
COMMANDS = Path("/etc/headway/commands")
MUNGE_BYTES = (32, 1024)


async def store_new_secrets(store: Store, cluster: Cluster, new: Mapping[str, str]) -> None:
    """Stores the cluster's new secrets."""
    for name, value in new.items():
        await store.secrets.set(cluster.name, name, value)


def new_key() -> str:
    """Returns a new ed25519 private key as OpenSSH text."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def public_key(private: str) -> str:
    """Returns the public key line of an OpenSSH private key."""
    key = load_ssh_private_key(private.encode(), None)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


async def read_given_secrets(cluster: Cluster) -> dict[str, str]:
    """Returns the secrets that the cluster file takes from a file or command. Raises Refused if one can't be read."""
    source = cluster.munge_key
    if source is None:
        return {}
    if source.file:
        try:
            data = await asyncio.to_thread(Path(source.file).read_bytes)
        except OSError as error:
            raise Refused(f"secrets.munge: {source.file} can't be read: {error.strerror}") from None
    else:
        program = COMMANDS / source.command[0]
        if "/" in source.command[0] or source.command[0].startswith(".") or not program.is_file():
            raise Refused(
                f"secrets.munge: {program} does not exist on the server's machine",
                hint="ask the administrator of that machine to install it",
            )
        ran = await run_process([str(program), *source.command[1:]], timeout_s=60, check=False, max_output=1 << 16)
        if ran.code != 0:  # its output is not shown, because it may contain the secret
            raise Refused(
                f"secrets.munge: {source.command[0]} ended with {ran.code}", hint="run it as the server's user"
            )
        data = ran.out.rstrip(b"\n")
    if not MUNGE_BYTES[0] <= len(data) <= MUNGE_BYTES[1]:
        raise Refused(
            f"secrets.munge: {source.description} gives {len(data)} bytes; MUNGE takes {MUNGE_BYTES[0]} to {MUNGE_BYTES[1]}"
        )
    return {"munge_key": base64.b64encode(data).decode()}


async def ensure_secrets(
    store: Store, cluster: Cluster, machines: tuple[str, ...], outside: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns all secrets of the cluster and creates the missing ones. The first writer wins. `outside`: from
    `read_given_secrets`; another key stays in use until the machines have taken the new one."""
    have, owner = await store.secrets.of_cluster(cluster.name), cluster.name
    for name, value in (outside or {}).items():
        if name not in have:
            have[name] = await store.secrets.put_if_absent(owner, name, value)
    for name, size in FILE_SECRETS.items():
        if name not in have:
            have[name] = await store.secrets.put_if_absent(
                owner, name, base64.b64encode(random.token_bytes(size)).decode()
            )
    for name in ("bootstrap_key", *(host_key_name(machine) for machine in machines)):
        if name not in have:
            have[name] = await store.secrets.put_if_absent(owner, name, new_key())
    return have


def host_key_name(machine: str) -> str:
    """Returns the name of the secret that holds a machine's private host key."""
    return f"host_key/{machine}"


def secret_content(secrets: Mapping[str, str], name: str) -> bytes:
    """Returns the bytes of the file that holds this secret on a machine."""
    return base64.b64decode(secrets[name])


def secret_digests(secrets: Mapping[str, str]) -> dict[str, str]:
    """Returns the sha256 of each file secret that exists, to compare machines with."""
    return {name: hashlib.sha256(secret_content(secrets, name)).hexdigest() for name in FILE_SECRETS if name in secrets}
