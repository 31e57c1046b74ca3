"""A cluster's secrets: made once, kept in the server's store, never shown."""

from __future__ import annotations

import base64
import hashlib
import secrets as random
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from headway.store import Store

# Secrets that become files on machines, and how many random bytes each has. They are stored as base64.
FILE_SECRETS = {"munge_key": 1024, "jwt_key": 32}


def new_key() -> str:
    """A fresh ed25519 private key as OpenSSH text."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def public_of(private: str) -> str:
    """The one public key line that belongs to an OpenSSH private key."""
    key = load_ssh_private_key(private.encode(), None)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


async def ensure(store: Store, cluster: str, machines: tuple[str, ...]) -> dict[str, str]:
    """Every secret the cluster needs, the missing ones made now. The first writer wins."""
    have = await store.secrets(cluster)
    for name, size in FILE_SECRETS.items():
        if name not in have:
            have[name] = await store.put_secret(cluster, name, base64.b64encode(random.token_bytes(size)).decode())
    for name in ("bootstrap_key", *(host_key_name(machine) for machine in machines)):
        if name not in have:
            have[name] = await store.put_secret(cluster, name, new_key())
    return have


def host_key_name(machine: str) -> str:
    return f"host_key/{machine}"


def content(secrets: Mapping[str, str], name: str) -> bytes:
    """The bytes of the file that holds this secret on a machine."""
    return base64.b64decode(secrets[name])


def digests(secrets: Mapping[str, str]) -> dict[str, str]:
    """sha256 of each file secret that exists, to compare machines with."""
    return {name: hashlib.sha256(content(secrets, name)).hexdigest() for name in FILE_SECRETS if name in secrets}
