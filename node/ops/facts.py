"""Reads the facts of one machine that a ChangeSet is computed from."""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import stat
import subprocess
import time
from typing import Any

from ops import packages, quotas, user_processes
from ops.files import MANAGED, STAMPS, block_of, is_taken_by_other, name_of, read_json, read_text

UNIT_FIELDS = (
    "Id,ActiveState,SubState,UnitFileState,MainPID,ActiveEnterTimestampMonotonic,ExecMainStartTimestampMonotonic"
)


def observe(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts from which changes are computed: files, units, folders, sessions, packages, quotas. Changes nothing."""
    owners, blocks = request.get("owners", {}), request.get("blocks", ())
    return {
        "files": {
            path: seen for path in request.get("files", ()) if (seen := see_file(path, path in blocks)) is not None
        },
        "units": see_units(request.get("units", ())),
        "managed": read_json(MANAGED, []),
        "dirs": [
            path
            for path in request.get("dirs", ())
            if os.path.isdir(path) and not is_taken_by_other(path, owners.get(path))
        ],
        "sessions": see_sessions(request.get("users", ())),
        "missing": packages.missing_packages(request.get("packages", ())),
        "quotas": quotas.see_quotas(request.get("quotas", {})),
        "hostname": os.uname().nodename,
        "parts": read_text(packages.STAMP).strip(),
        "texts": {path: read_text(path) for path in request.get("texts", ()) if os.path.isfile(path)},
    }


def see_file(path: str, block: bool = False) -> dict[str, Any] | None:
    """Returns digest, mode and owner of a file; None if it does not exist. `block`: only Headway's lines in it count,
    and None is also returned if it has none. Anything but a regular file has an empty digest."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return {"sha": "", "mode": 0, "owner": "", "group": "", "ctime": info.st_ctime}
    with open(path, "rb") as file:
        data = file.read()
    if block:
        data = block_of(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        if not data:
            return None
    digest = hashlib.sha256(data).hexdigest()
    return {
        "sha": digest,
        "mode": stat.S_IMODE(info.st_mode),
        "owner": name_of(info.st_uid, pwd.getpwuid),
        "group": name_of(info.st_gid, grp.getgrgid),
        "ctime": info.st_ctime,
    }


def see_units(names: Any) -> dict[str, Any]:
    """Returns unit -> its state, from `systemctl show`. "loaded" is the digest of what the unit read when Headway last
    started it."""
    if not names:
        return {}
    done = subprocess.run(
        ["systemctl", "show", "-p", UNIT_FIELDS, *names],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    offset = time.time() - time.monotonic()
    units = {}
    for name, block in zip(names, done.stdout.strip("\n").split("\n\n"), strict=False):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        started = int(fields.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
        units[name] = {
            "active": fields.get("ActiveState") in ("active", "reloading"),
            "state": fields.get("ActiveState", ""),
            "enabled": fields.get("UnitFileState") in ("enabled", "static", "generated", "enabled-runtime", "alias"),
            "pid": int(fields.get("MainPID") or 0),
            "started": started + offset if started else 0.0,
            "loaded": read_text(f"{STAMPS}/{name}").strip(),
        }
    return units


def see_sessions(users: Any) -> list[str]:
    """Returns those of the users who run a process on this machine outside of jobs."""
    users_by_uid = {}
    for user in users:
        with contextlib.suppress(KeyError):
            users_by_uid[pwd.getpwnam(user).pw_uid] = user
    if not users_by_uid:
        return []
    return sorted({users_by_uid[uid] for _, uid in user_processes.processes(set(users_by_uid))})
