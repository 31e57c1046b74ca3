"""Where Headway keeps things on this machine. Imports nothing heavy: the command line and the server both start
here."""

from __future__ import annotations

import os
from pathlib import Path

CLIENT_FILE = "client.json"  # {"url", "token"}, mode 600
SUDO_FILE = "sudo.json"  # {state folder: {"url", "token", "pid", "started"}}, mode 600: servers started through sudo
SERVER_FILE = "server.json"  # {"url", "pid", ...} of the server that runs on this state folder
PID_FILE = "server.pid"
LOCK_FILE = "server.lock"
LOG_FILE = "server.log"

ROOT_STATE = Path("/var/lib/headway")


def state_dir() -> Path:
    """The server's folder: HEADWAY_STATE, else /var/lib/headway for root, else the user's XDG data folder."""
    chosen = os.environ.get("HEADWAY_STATE")
    if chosen:
        return Path(chosen).absolute()
    if os.geteuid() == 0:
        return ROOT_STATE
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "headway"


def volumes_dir(state: Path, cluster: str) -> Path:
    """Where the data of a local cluster lies: homes, scratch, the head's state, versions of datasets."""
    return state / "volumes" / cluster


def node_dir() -> Path:
    """node/, what runs on machines: in the source tree, or in an installed package."""
    package = Path(__file__).resolve().parent
    inside = package / "_node"
    return inside if inside.is_dir() else package.parents[1] / "node"


def config_dir() -> Path:
    """The client's folder: keys, the user's own catalogue, the address of a server elsewhere."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "headway"
