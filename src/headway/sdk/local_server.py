"""Finds, starts and stops this machine's server. Standard library only, so that commands start quickly."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from headway import paths
from headway.errors import Refused, Unreachable
from headway.sdk.process_liveness import is_alive

START_S = 60.0
STOP_S = 15.0
FULL_MIB = 16  # MiB; with less free space the server can't start
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server process that runs on a state folder."""

    url: str
    pid: int
    started: str  # the kernel's start time of the process, so that a reused pid is not mistaken for it
    fingerprint: str = ""  # of the certificate that the server made for itself


def running_server(state_dir: Path | None = None) -> RunningServer | None:
    """Returns the state folder's server once it has published its address; None when none runs."""
    folder = state_dir or paths.state_dir()
    try:
        known = json.loads((folder / paths.SERVER_FILE).read_text())
        server = RunningServer(
            str(known["url"]), int(known["pid"]), str(known.get("started", "")), str(known.get("fingerprint", ""))
        )
    except PermissionError:
        raise Unreachable(
            f"{folder} belongs to another user", hint="set HEADWAY_URL and HEADWAY_TOKEN, or use sudo"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return server if is_alive(server.pid, server.started) else None


def log_file(state_dir: Path | None = None) -> Path:
    """Returns the path of the server's log."""
    return (state_dir or paths.state_dir()) / paths.LOG_FILE


def server_argv() -> list[str]:
    """Returns the command that runs the server in the foreground; HEADWAY_STATE and HEADWAY_PORT set its folder and port."""
    return [sys.executable, "-P", "-m", "headway.server"]


def start_server(state_dir: Path | None = None, *, port: int | None = None) -> RunningServer:
    """Starts the server in the background, unless one runs, and returns it once it answers.

    Raises Refused with the last error of its log when it does not start."""
    folder = state_dir or paths.state_dir()
    already = _wait_until_answering(folder)
    if already is not None:
        return already
    _make_state_folder(folder)
    env = {"HEADWAY_STATE": str(folder)}
    if port is not None:
        env["HEADWAY_PORT"] = str(port)
    from headway.transport.process import spawn

    log = log_file(folder)
    before = log.stat().st_size if log.exists() else 0
    pid = spawn(server_argv(), log=log, env=env)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = running_server(folder)
        if found is not None:
            _end_duplicate(pid, found)
            return found
        if _has_ended(pid) and not _is_locked(folder):
            found = running_server(folder)  # it may have started and stopped, or another start was faster
            if found is not None:
                return found
            message, hint = _last_error(log, before)
            raise Refused(f"the server did not start: {message}", hint=hint or _log_hint(log))
        time.sleep(_POLL_S)
    raise Refused(f"the server did not answer within {START_S:g} s", hint=f"see {log}")


def _end_duplicate(pid: int, found: RunningServer) -> None:
    """Ends the process just started when another server was faster: it could take over after that one stops."""
    if pid != found.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _wait_until_answering(folder: Path) -> RunningServer | None:
    """Returns the running server that accepts connections; None when none runs.

    Waits for a server that was just killed: its process is visible for a moment after its connections broke."""
    import socket
    from urllib.parse import urlsplit

    deadline = time.monotonic() + STOP_S
    while (server := running_server(folder)) is not None:
        address = urlsplit(server.url)
        try:
            socket.create_connection((address.hostname or "127.0.0.1", address.port or 80), timeout=2).close()
            return server
        except OSError:
            if time.monotonic() > deadline:
                raise Refused(
                    f"the server (process {server.pid}) runs but does not answer at {server.url}",
                    hint=f"headway server stop, or kill -9 {server.pid}",
                ) from None
            time.sleep(_POLL_S)
    return None


def stop_server(state_dir: Path | None = None) -> bool:
    """Stops the server and returns whether one was running. Clusters and their jobs continue."""
    server = running_server(state_dir)
    if server is None:
        return False
    try:
        os.kill(server.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise Refused(f"the server (process {server.pid}) belongs to another user", hint="use sudo") from None
    deadline = time.monotonic() + STOP_S
    while is_alive(server.pid, server.started):
        if time.monotonic() > deadline:
            raise Refused(
                f"the server (process {server.pid}) does not stop",
                hint=f"end it with kill -9 {server.pid}; no data is lost",
            )
        _has_ended(server.pid)
        time.sleep(_POLL_S)
    return True


def _make_state_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(
            f"the state folder {folder} can't be created: {error.strerror}", hint="set HEADWAY_STATE to another folder"
        ) from None
    if not os.access(folder, os.W_OK):
        raise Refused(
            f"{folder} belongs to another user", hint="use sudo, or set HEADWAY_STATE to a folder of your own"
        )


def _has_ended(pid: int) -> bool:
    """Returns whether a child process has ended, and reaps it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not is_alive(pid)


def _is_locked(folder: Path) -> bool:
    """Returns whether a server holds the state folder's lock; it may still be starting."""
    import fcntl

    try:
        with (folder / paths.LOCK_FILE).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _log_hint(log: Path) -> str:
    """Returns the next step: free space on a full disk, where the log may lack the error, else the log."""
    import shutil

    free_mib = shutil.disk_usage(log.parent).free >> 20
    return f"free space in {log.parent}, then start the server again" if free_mib < FULL_MIB else f"see {log}"


def _last_error(log: Path, start: int) -> tuple[str, str]:
    """Returns the error that this start ended with, and its hint ("" if it has none)."""
    try:
        with log.open("rb") as source:
            source.seek(start)
            lines = source.read()[-4000:].decode(errors="replace").splitlines()
    except OSError:
        return "no log", ""
    firsts = [index for index, line in enumerate(lines) if line and not line.startswith(" ")]
    if not firsts:
        return "its log is empty", ""
    line, after = lines[firsts[-1]], lines[firsts[-1] + 1 :]
    try:
        entry = json.loads(line)
        return str(entry.get("error") or entry.get("event")), ""
    except ValueError:
        return line, "\n".join(text.strip() for text in after)
