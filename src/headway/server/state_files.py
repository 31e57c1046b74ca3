"""The state folder's files: the lock that allows one server per folder, and the address at which clients find that server."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
from pathlib import Path
from typing import IO, Any

from headway import __version__, paths
from headway.code_digest import code_digest
from headway.errors import Refused
from headway.private_files import write_private
from headway.sdk.local_server import running_server
from headway.sdk.process_liveness import process_start_time

LEAST_MIB = 16  # MiB that must be free on the state folder's disk when the server starts


def lock_state_dir(state_dir: Path) -> IO[str]:
    """Creates the folder and takes its lock for the life of the process. The kernel releases the lock however the
    process ends, so the process that has it knows that every earlier server of the folder is dead. Raises Refused."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(state_dir / paths.LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(f"the state folder {state_dir} can't be used: {error.strerror}", hint="HEADWAY_STATE") from None
    lock = os.fdopen(handle, "r+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        other = running_server(state_dir)
        where = f" at {other.url} (process {other.pid})" if other else ""
        raise Refused(f"a server already runs on {state_dir}{where}", hint="headway server stop") from None
    (state_dir / paths.SERVER_FILE).unlink(missing_ok=True)
    return lock


def require_free_space(state_dir: Path, least_mib: int = LEAST_MIB) -> None:
    """Raises Refused if the state folder's disk is full, because a database that can't be written is of no use."""
    free_mib = shutil.disk_usage(state_dir).free >> 20
    if free_mib < least_mib:
        raise Refused(
            f"the disk of {state_dir} is full: {free_mib} MiB are free, {least_mib} MiB are needed",
            hint="free space there, then start the server again; nothing is lost",
        )


def write_address_file(state_dir: Path, url: str, cert: str = "", fingerprint: str = "") -> None:
    """Writes the server's address and process id once it answers. `cert`: the file of its certificate; `fingerprint`:
    of a certificate that it made for itself; both "" without TLS."""
    pid = os.getpid()
    write_private(state_dir / paths.PID_FILE, f"{pid}\n")
    known = {
        "url": url,
        "pid": pid,
        "started": process_start_time(pid),
        "version": __version__,
        "code": code_digest(),
        "cert": cert,
        "fingerprint": fingerprint,
    }
    write_private(state_dir / paths.SERVER_FILE, json.dumps(known) + "\n")


def remove_address_file(state_dir: Path) -> None:
    """Removes the files that announce the server."""
    for name in (paths.SERVER_FILE, paths.PID_FILE):
        (state_dir / name).unlink(missing_ok=True)


def read_client(state_dir: Path) -> dict[str, Any]:
    """Returns the client file's content; {} if it is missing or unreadable."""
    try:
        known = json.loads((state_dir / paths.CLIENT_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def write_client(state_dir: Path, url: str, token: str) -> None:
    """Writes the address and the token that clients of this machine use."""
    write_private(state_dir / paths.CLIENT_FILE, json.dumps({"url": url, "token": token}) + "\n")


def starter() -> str:
    """Returns the name of the person who started this server: the user behind sudo, else the process's own user."""
    name = os.environ.get("SUDO_USER", "") if os.geteuid() == 0 else ""
    if name:
        return name
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return os.environ.get("USER") or f"uid{os.geteuid()}"
