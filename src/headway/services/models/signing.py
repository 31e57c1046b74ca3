"""The key that signs the manifests of a cluster's promotions. It is kept with the other secrets of the cluster: encrypted in the
database, and in the cluster's backups."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from headway.services.app_state import AppState
from headway.signed_statement import envelope, new_signing_key, public_key, read_signing_key

_NAME = "model-signing-key"


async def _signing_key(state: AppState, cluster: str) -> str:
    """Returns the private key (PEM), which is made at its first use."""
    known = await state.store.secrets.get(cluster, _NAME)
    if known is not None:
        return known
    return await state.store.secrets.put_if_absent(cluster, _NAME, await asyncio.to_thread(new_signing_key))


async def cluster_public_key(state: AppState, cluster: str) -> str:
    """Returns the public key as PEM."""
    return public_key(await _signing_key(state, cluster))


async def sign(state: AppState, cluster: str, statement: dict[str, Any]) -> str:
    """Returns the signed manifest with this statement, as JSON text."""
    key = read_signing_key(await _signing_key(state, cluster))
    return json.dumps(envelope(json.dumps(statement, indent=1).encode(), key))
