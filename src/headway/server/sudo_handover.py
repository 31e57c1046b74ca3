"""Lets the user who started the server through sudo reach it without sudo: writes the address and a token of that
user into the user's config folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import structlog

from headway import paths
from headway.domain.access.role import Role
from headway.private_files import write_private
from headway.sdk.process_liveness import is_alive, process_start_time
from headway.store import Store
from headway.system_user import acting_as, user_behind_sudo

log = structlog.get_logger("headway.server")


async def hand_over(
    store: Store,
    state_dir: Path,
    url: str,
    fingerprint: str = "",
    *,
    renew_before_s: float = 0.0,
    renewal: bool = False,
) -> None:
    """Writes the file that `find_server` reads, with a new token if the one there ends so soon. `renewal`: the server runs
    already, so a person who is unknown was removed and gets none. Without the file that person needs sudo for every command,
    so an error is only logged."""
    user = user_behind_sudo()
    if user is None:
        return
    folder = Path(user.pw_dir) / ".config" / "headway"
    try:
        with acting_as(user):
            known = _read(folder / paths.SUDO_FILE)
        token = str(known.pop(str(state_dir), {}).get("token", ""))
        holder = await store.tokens.holder_for(token, renew_before_s) if token else None
        if holder is None or holder.person.name != user.pw_name:
            person = await store.people.get(user.pw_name)
            if person is not None and person.disabled:
                return
            if person is None:
                if renewal:  # they were removed meanwhile
                    return
                await store.people.set_role(user.pw_name, Role.ADMIN)
                await store.audit.record(user.pw_name, "person.add", user.pw_name, {"by": "sudo", "role": "admin"})
            row, token = await store.tokens.create(user.pw_name, label="created for the sudo caller")
            detail = {"by": "sudo", "id": row.id, "expires_at": row.expires_at}
            await store.audit.record(user.pw_name, "token.create", user.pw_name, detail)
        pid = os.getpid()
        others = {of: record for of, record in known.items() if is_alive(record["pid"], record["started"])}
        ours = {
            "url": url,
            "token": token,
            "pid": pid,
            "started": process_start_time(pid),
            "fingerprint": fingerprint,
        }
        with acting_as(user):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(folder / paths.SUDO_FILE, json.dumps({**others, str(state_dir): ours}) + "\n")
    except OSError as error:
        log.warning("could not give the sudo caller access", user=user.pw_name, error=str(error))


def _read(file: Path) -> dict[str, dict[str, Any]]:
    """Returns the file's entries by state folder; {} if it is missing or unreadable."""
    try:
        known = json.loads(file.read_text())
        return {
            str(of): {**record, "pid": int(record["pid"]), "started": str(record["started"])}
            for of, record in known.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
