"""Starts the MLflow tracking server of a job: a program on the node, run as the job's user, that answers MLflow's REST API
(`answers`, `listeners`).

slurmd runs this file as the task prolog of each task. The first one on a node starts the receiver, which ends with the step of
its task; it prints the variables with which MLflow finds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

if __name__ == "__main__":  # slurmd runs it by its path, without site packages, because that is faster
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

URI, TOKEN = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN"
OF_JOB = "HEADWAY_MLFLOW_JOB"  # whose receiver URI names: a job that is submitted by another one inherits its variables


def start() -> None:
    """Prints the variables of the job's receiver on this node for slurmd, and starts the receiver if there is none."""
    from headway_train.mlflow_receiver import journal

    job = os.environ.get("SLURM_JOB_ID", "")
    folder = journal.default_folder()
    own_server = URI in os.environ and not os.environ.get(OF_JOB)
    if own_server or os.environ.get(OF_JOB) == job or not job.isdigit() or folder is None:
        return
    known = Path(f"/tmp/.headway-mlflow-{job}")
    lock = os.open(f"{known}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    variables = _running(known)
    if not variables:
        host = socket.gethostname()
        listening = _listen(host)
        token = os.urandom(24).hex()
        where = f"http://{host}:{listening.getsockname()[1]}"
        variables = {URI: where, TOKEN: token, OF_JOB: job}
        child = os.fork()
        if child == 0:
            os.close(lock)
            _become_receiver(listening, token, folder, job)
        new = known.with_suffix(".new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as out:
            json.dump({"pid": child, "variables": variables}, out)
        new.rename(known)
    if os.environ.get("http_proxy") or os.environ.get("HTTP_PROXY"):
        host = variables[URI].removeprefix("http://").split(":")[0]
        variables["no_proxy"] = variables["NO_PROXY"] = f"{os.environ.get('no_proxy', '')},{host}".lstrip(",")
    for name, value in variables.items():
        print(f"export {name}={value}")


def _running(known: Path) -> dict[str, str]:
    """Returns the variables of the receiver that runs on this node; {} if there is none."""
    try:
        if known.lstat().st_uid != os.getuid():
            return {}
        said = json.loads(known.read_text())
        os.kill(int(said["pid"]), 0)
        return dict(said["variables"])
    except (OSError, ValueError, KeyError):
        return {}


def _listen(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0), backlog=128)
    except OSError:  # the name of the machine has no address of its own
        return socket.create_server(("127.0.0.1", 0), backlog=128)


def _become_receiver(listening: socket.socket, token: str, folder: Path, job: str) -> None:
    """Leaves the task prolog, whose output slurmd reads to its end, and serves."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        select.select([listening], [], [])
        from headway_train.mlflow_receiver import listeners

        listeners.serve(listening, token, folder, job)
    finally:
        os._exit(0)


if __name__ == "__main__":
    with contextlib.suppress(Exception):  # a job must start also without its receiver
        start()
