"""Runs a real PostgreSQL for one test, over a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BIN = next(
    (p for p in (*sorted(Path("/usr/lib/postgresql").glob("*/bin")), Path("/usr/bin")) if (p / "initdb").exists()), None
)


def _user() -> str:
    """Returns the user that runs PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    return next((name for name in ("postgres", "nobody") if _known(name)), "nobody")


def _known(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def postgres(tls: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Yields the URL of the database of a PostgreSQL server; needs the programs in BIN. `tls`: certificate and key of a server
    that listens on 127.0.0.1 instead of a Unix socket."""
    user, me = _user(), os.geteuid() != 0
    # a short path, because a socket's path may have 107 characters
    folder = Path(tempfile.mkdtemp(prefix="headway-pg-"))
    if not me:
        shutil.chown(folder, user)
    how: dict[str, Any] = {} if me else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    initdb = [f"{BIN}/initdb", "-D", f"{folder}/db", "-U", "headway", "-A", "trust", "--no-sync"]
    settings = [f"unix_socket_directories={folder}", "listen_addresses=", "fsync=off", "shared_buffers=16MB"]
    address = f"/postgres?host={folder}"
    if tls:
        for file, name in zip(tls, ("cert.pem", "key.pem"), strict=True):
            shutil.copy(file, folder / name)
            (folder / name).chmod(0o600)
            if not me:
                shutil.chown(folder / name, user)
        port = _free_port()
        settings = [
            "listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories=", "ssl=on", "fsync=off",
            f"ssl_cert_file={folder}/cert.pem", f"ssl_key_file={folder}/key.pem", "shared_buffers=16MB",
        ]  # fmt: skip
        address = f"127.0.0.1:{port}/postgres"
    options = " ".join(f"-c {setting}" for setting in settings)
    control = [f"{BIN}/pg_ctl", "-D", f"{folder}/db", "-w"]
    try:
        subprocess.run(initdb, check=True, capture_output=True, cwd="/", **how)
        start = [*control, "-l", f"{folder}/log", "-o", options, "start"]
        subprocess.run(start, check=True, capture_output=True, cwd="/", **how)
        try:
            yield f"postgresql://headway@{address}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True, cwd="/", **how)
    finally:
        shutil.rmtree(folder)
