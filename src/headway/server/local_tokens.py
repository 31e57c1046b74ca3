"""The tokens in private files of this machine, by which the person who started the server reaches it. They end as others do: the
server replaces each of them before, so that no person has to act and a copy of the file does not stay valid."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from headway.domain.access.role import Role
from headway.errors import HeadwayError
from headway.server import state_files, sudo_handover
from headway.store import Store

RENEW_BEFORE_S = 30 * 86400.0  # commands that run for long keep the token that they have read
CHECK_S = 6 * 3600.0

log = structlog.get_logger("headway.server")


async def first_admin(store: Store, state_dir: Path) -> str:
    """Returns the token of the person who started the server here, a new one if it ends soon. At the first start that person
    becomes an admin. "" for a disabled or removed person."""
    token = str(state_files.read_client(state_dir).get("token") or "")
    if token and await store.tokens.holder_for(token, RENEW_BEFORE_S) is not None:
        return token
    old = await store.tokens.holder(token) if token else None
    name, why = old.person.name if old else state_files.starter(), {"by": "server" if old else "first start"}
    known = await store.people.get(name)
    if known is not None and known.disabled:
        return ""
    if known is None:
        if await store.people.all():  # they were removed
            return ""
        await store.people.set_role(name, Role.ADMIN)
        await store.audit.record(name, "person.add", name, {**why, "role": "admin"})
    row, token = await store.tokens.create(name, label="commands on the server's machine")
    await store.audit.record(name, "token.create", name, {**why, "id": row.id, "expires_at": row.expires_at})
    return token


async def write_local_tokens(
    store: Store, state_dir: Path, url: str, fingerprint: str, *, renewal: bool = False
) -> None:
    """Writes the address and a valid token into the files of the person who started the server, and of the person who called
    sudo for it. `renewal`: the server runs already."""
    state_files.write_client(state_dir, url, await first_admin(store, state_dir))
    await sudo_handover.hand_over(store, state_dir, url, fingerprint, renew_before_s=RENEW_BEFORE_S, renewal=renewal)


async def renew_local_tokens(store: Store, state_dir: Path, url: str, fingerprint: str) -> None:
    """Replaces the tokens of a running server that end soon, until cancelled."""
    while True:
        await asyncio.sleep(CHECK_S)
        try:
            await write_local_tokens(store, state_dir, url, fingerprint, renewal=True)
        except (HeadwayError, OSError) as error:
            log.warning("the token of this machine's commands was not renewed", error=str(error))
