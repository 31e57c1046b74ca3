"""The server of this machine's state folder: is it there, start it, stop it, its log. Files and one process."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from headway import paths
from headway.errors import Refused, Unreachable
from headway.sdk.liveness import alive

START_S = 30.0  # a first start makes the database
STOP_S = 30.0  # open requests end first
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class RunningServer:
    url: str
    pid: int
    started: str  # the kernel's start time of the process


def running(folder: Path | None = None) -> RunningServer | None:
    """The server that runs on the state folder, or None."""
    try:
        told = json.loads(((folder or paths.state_dir()) / paths.SERVER_FILE).read_text())
        server = RunningServer(str(told["url"]), int(told["pid"]), str(told.get("started", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return server if alive(server.pid, server.started) else None


def server_argv() -> list[str]:
    """What runs a server in the foreground, settings from HEADWAY_* variables."""
    return [sys.executable, "-m", "headway.server"]


def log_file(folder: Path | None = None) -> Path:
    return (folder or paths.state_dir()) / paths.LOG_FILE


def start_server(folder: Path | None = None, *, timeout_s: float = START_S) -> RunningServer:
    """The running server; starts one, detached from this terminal, when there is none. Whoever starts at the same
    moment gets the same server: it holds the folder's lock. Raises Refused, with the log's last lines, when it ends
    at once, and Unreachable when it does not come up in time."""
    folder = folder or paths.state_dir()
    found = running(folder)
    if found is not None:
        return found
    from headway.machines.run import spawn

    log = log_file(folder)
    _make(folder)
    before = log.stat().st_size if log.exists() else 0
    pid = spawn(server_argv(), log=log, env={"HEADWAY_STATE": str(folder)})
    deadline = time.monotonic() + timeout_s
    ended = False
    while time.monotonic() < deadline:
        found = running(folder)
        if found is not None:
            return found
        if ended:
            break
        ended = _has_ended(pid)  # one more look: it may have found another server that was just coming up
        time.sleep(POLL_S)
    if ended and _someone_starts(folder, deadline):
        return start_server(folder, timeout_s=max(1.0, deadline - time.monotonic()))
    said = _tail(log, before)
    if ended:
        raise Refused(f"the server did not start: {said}", hint=f"its log: {log}")
    raise Unreachable(f"the server did not come up within {timeout_s:.0f} s", hint=f"its log: {log}\n{said}")


def stop_server(folder: Path | None = None, *, timeout_s: float = STOP_S) -> bool:
    """Asks the server to end and waits for it. False when none runs; Unreachable when it does not end in time."""
    found = running(folder)
    if found is None:
        return False
    try:
        os.kill(found.pid, signal.SIGTERM)
    except ProcessLookupError:
        return True
    except PermissionError:
        raise Refused(f"the server (process {found.pid}) is another user's", hint="stop it as that user") from None
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not alive(found.pid, found.started):
            return True
        time.sleep(POLL_S)
    raise Unreachable(
        f"the server (process {found.pid}) has not ended after {timeout_s:.0f} s", hint="headway server logs"
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Refused(
            f"{folder}: cannot be made: {(error.strerror or str(error)).lower()}",
            hint="HEADWAY_STATE names another folder for the server",
        ) from None


def _has_ended(pid: int) -> bool:
    """Whether our child ended; takes it off the process table."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not alive(pid)


def _someone_starts(folder: Path, deadline: float) -> bool:
    """Whether another process holds the folder's lock: its server is coming up."""
    import fcntl

    try:
        with (folder / paths.LOCK_FILE).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return time.monotonic() < deadline
    except OSError:
        return False
    return running(folder) is not None


def _tail(log: Path, start: int) -> str:
    try:
        with log.open("rb") as source:
            source.seek(start)
            return source.read()[-1500:].decode(errors="replace").strip() or "it said nothing"
    except OSError:
        return "it wrote no log"
