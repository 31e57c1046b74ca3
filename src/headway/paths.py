"""Paths of Headway's files on this machine. Imports only light modules, because the command line and the server both
load it first."""

from __future__ import annotations

import os
from pathlib import Path

CLIENT_FILE = "client.json"  # {"url", "token"}, mode 600; of a server elsewhere also "fingerprint"
SUDO_FILE = "sudo.json"  # {state folder: {"url", "token", "pid", "started"}}, mode 600: servers started through sudo
SERVER_FILE = "server.json"  # {"url", "pid", ...} of the server that uses this state folder
PID_FILE = "server.pid"
LOCK_FILE = "server.lock"
LOG_FILE = "server.log"

ROOT_STATE = Path("/var/lib/headway")


def state_dir() -> Path:
    """Returns the server's folder: HEADWAY_STATE, else /var/lib/headway for root, else the user's XDG data folder."""
    chosen = os.environ.get("HEADWAY_STATE")
    if chosen:
        return Path(chosen).absolute()
    if os.geteuid() == 0:
        return ROOT_STATE
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "headway"


def instance_label(state: Path) -> str:
    """Returns the value of the label `headway.instance`, which all containers and networks of a state folder have."""
    import hashlib

    return hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:8]


def volumes_dir(state: Path, cluster: str) -> Path:
    """Returns the folder with the data of a local cluster: homes, scratch, the head's state, versions of datasets."""
    return state / "volumes" / cluster


def node_dir() -> Path:
    """Returns node/, the code that runs on machines: from the source tree or from an installed package."""
    package = Path(__file__).resolve().parent
    inside = package / "_node"
    return inside if inside.is_dir() else package.parents[1] / "node"


def mlflow_lock() -> Path:
    """Returns the file that pins the packages of the MLflow server: from the source tree or from an installed package."""
    package = Path(__file__).resolve().parent
    inside = package / "_mlflow.txt"
    return inside if inside.is_file() else package.parents[1] / "requirements" / "mlflow.txt"


def config_dir() -> Path:
    """Returns the client's folder: keys, the user's own catalogue, the address of a remote server."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "headway"
