"""The server of this machine: is it there, start it, stop it. Standard library only, so that commands stay quick."""

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
FULL_MIB = 16  # less than the server needs to start
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that runs on a state folder."""

    url: str
    pid: int
    started: str  # the kernel's start time of the process, so that a reused pid is not mistaken for it


def running_server(state_dir: Path | None = None) -> RunningServer | None:
    """The server of the state folder, once it answers; None when there is none."""
    folder = state_dir or paths.state_dir()
    try:
        known = json.loads((folder / paths.SERVER_FILE).read_text())
        server = RunningServer(str(known["url"]), int(known["pid"]), str(known.get("started", "")))
    except PermissionError:
        raise Unreachable(
            f"{folder} belongs to another user", hint="set HEADWAY_URL and HEADWAY_TOKEN, or use sudo"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return server if is_alive(server.pid, server.started) else None


def log_file(state_dir: Path | None = None) -> Path:
    return (state_dir or paths.state_dir()) / paths.LOG_FILE


def server_argv() -> list[str]:
    """What starts the server in the foreground; its folder and port come from HEADWAY_STATE and HEADWAY_PORT."""
    return [sys.executable, "-P", "-m", "headway.server"]


def start_server(state_dir: Path | None = None, *, port: int | None = None) -> RunningServer:
    """Starts the server detached and returns once it answers. One that runs already is returned as it is.

    Raises Refused with the end of its log when it does not start."""
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
            found = running_server(folder)  # it may have come up and gone, or another start was faster
            if found is not None:
                return found
            message, hint = _last_error(log, before)
            raise Refused(f"the server did not start: {message}", hint=hint or _log_hint(log))
        time.sleep(_LOOK_S)
    raise Refused(f"the server did not answer within {START_S:g} s", hint=f"see {log}")


def _end_duplicate(pid: int, found: RunningServer) -> None:
    """Ends the process just started when another server was faster: left alone it could take over after a stop."""
    if pid != found.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _wait_until_answering(folder: Path) -> RunningServer | None:
    """The server that runs and takes connections. One that was just killed is waited for until it is gone: its process
    can be seen for a moment after its connections broke."""
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
            time.sleep(_LOOK_S)
    return None


def stop_server(state_dir: Path | None = None) -> bool:
    """Ends the server in good order; whether there was one. Clusters and their jobs go on."""
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
                f"the server (process {server.pid}) does not end", hint=f"kill -9 {server.pid} ends it; nothing is lost"
            )
        _has_ended(server.pid)
        time.sleep(_LOOK_S)
    return True


def _make_state_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(
            f"the state folder {folder} can't be made: {error.strerror}", hint="HEADWAY_STATE names another"
        ) from None
    if not os.access(folder, os.W_OK):
        raise Refused(f"{folder} belongs to another user", hint="use sudo, or HEADWAY_STATE for one of your own")


def _has_ended(pid: int) -> bool:
    """Whether a child of ours is gone (and no zombie of it stays)."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not is_alive(pid)


def _is_locked(folder: Path) -> bool:
    """Whether some server holds the state folder: it is just starting."""
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
    """A full disk takes the server's last words too."""
    import shutil

    free_mib = shutil.disk_usage(log.parent).free >> 20
    return f"make room in {log.parent}, then start it again" if free_mib < FULL_MIB else f"see {log}"


def _last_error(log: Path, start: int) -> tuple[str, str]:
    """The error this start ended with, and its hint ("" when there is none)."""
    try:
        with log.open("rb") as source:
            source.seek(start)
            said = source.read()[-4000:].decode(errors="replace").splitlines()
    except OSError:
        return "no log", ""
    firsts = [index for index, line in enumerate(said) if line and not line.startswith(" ")]
    if not firsts:
        return "it said nothing", ""
    line, after = said[firsts[-1]], said[firsts[-1] + 1 :]
    try:
        entry = json.loads(line)
        return str(entry.get("error") or entry.get("event")), ""
    except ValueError:
        return line, "\n".join(text.strip() for text in after)
