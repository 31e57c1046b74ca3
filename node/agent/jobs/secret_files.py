"""Writes a job's secrets to its folder in memory. The prolog runs this on each node as root, before the job's first step:
`agent.pyz secrets FOLDER FAILURE`.

The environment has the job's number, user and account from Slurm, and in SPANK_HEADWAY_SECRETS the names that the job asked for
(node/image/spank/private_tmp.c). If a secret is missing, the file FAILURE gets a sentence, with which the plugin fails the job:
a prolog that fails would drain the node."""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.config import Config
from agent.jobs.secret_server import ANSWER_S, read_until_closed
from agent.log import log
from agent.munge import Seals

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
MOST_NAMES = 16
MOST_ANSWER = 4 * 1024 * 1024  # bytes
WAIT_S = 30.0  # for a head that knows the secrets
RETRY_EVERY_S = 1.0

Ask = Callable[[str, dict[str, Any]], dict[str, Any] | None]


_NO_ANSWER = (
    f"no head of the cluster has answered within {WAIT_S:g} s: tell an administrator to read the journal of headway-agent on the "
    "head, then submit the job again"
)
_WITHOUT_SECRETS = (
    "no secrets have reached the cluster's heads: none was ever set, or Headway's server has not reached the heads yet. Set the "
    "secret with headway secret set, then submit the job again"
)


class NoSecrets(Exception):
    """The job can't have its secrets. The text is a sentence for its log."""


def write_secret_files(folder: str, failure: str, config: Config, munge: Seals, port: int) -> None:
    """Writes a file for each secret of the job to `folder`, or the sentence to `failure` that says why not. Raises OSError."""

    def ask(head: str, request: dict[str, Any]) -> dict[str, Any] | None:
        return ask_head(head, port, request, munge)

    uid = int(os.environ["SLURM_JOB_UID"])
    try:
        values = find_secrets(os.environ, config.heads, ask)
    except NoSecrets as error:
        log(f"job {os.environ.get('SLURM_JOB_ID')}: {error}")
        _write(failure, f"headway: {error}\n", 0o600, 0, 0)
        return
    gid = int(os.environ.get("SLURM_JOB_GID") or pwd.getpwuid(uid).pw_gid)
    for name, value in values.items():
        _write(f"{folder}/{name}", value, 0o400, uid, gid)
    # Last, so that no process of the user sees the folder while root writes to it.
    os.chmod(folder, 0o500)
    os.chown(folder, uid, gid)


def find_secrets(
    job: Mapping[str, str],
    heads: Sequence[str],
    ask: Ask,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Returns the values of the job's secrets by name. `job`: the prolog's environment. Raises NoSecrets."""
    names = list(dict.fromkeys(name for name in job["SPANK_HEADWAY_SECRETS"].split(",") if name))
    if wrong := [name for name in names if not NAME.fullmatch(name)]:
        raise NoSecrets(f"{wrong[0][:80]!r} is no name of a secret: give names that headway secret ls shows")
    if len(names) > MOST_NAMES:
        raise NoSecrets(f"the job requests {len(names)} secrets: request {MOST_NAMES} or fewer")
    account = job.get("SLURM_JOB_ACCOUNT", "")
    request = {
        "job": int(job["SLURM_JOB_ID"]),
        "uid": int(job["SLURM_JOB_UID"]),
        "account": account,
        "names": names,
        "node": os.uname().nodename,
        "number": secrets.token_hex(16),  # an answer to another request is not accepted
    }
    until = clock() + WAIT_S
    while True:
        answers = [answer for head in heads if (answer := ask(head, request))]
        # A head that was away may have old secrets: the newest ones count. A new head has none (revision 0) for some seconds.
        newest = max(answers, key=lambda answer: int(answer["revision"]), default=None)
        if newest and newest["revision"]:
            break
        if clock() >= until:
            raise NoSecrets(_WITHOUT_SECRETS if answers else _NO_ANSWER)
        sleep(RETRY_EVERY_S)
    if missing := newest["missing"]:
        team = f" and team {account} has none" if account else ""
        raise NoSecrets(
            f"there is no secret {', '.join(missing)}: {newest['user']} has none of this name on the cluster{team}. It was "
            "removed or never set: set it with headway secret set, then submit the job again"
        )
    return {name: str(newest["values"][name]) for name in names}


def ask_head(head: str, port: int, request: dict[str, Any], munge: Seals) -> dict[str, Any] | None:
    """Returns the answer of one head, None if there is none within ANSWER_S."""
    deadline = time.monotonic() + ANSWER_S
    try:
        sealed = munge.seal(json.dumps({"secrets": request}).encode())
        with socket.create_connection((head, port), timeout=ANSWER_S) as connection:
            connection.sendall(sealed)
            connection.shutdown(socket.SHUT_WR)
            data = read_until_closed(connection, MOST_ANSWER, deadline)
        if not data:
            raise OSError("no answer")
        text, uid = munge.open(data)
        answer = json.loads(text)
    except (OSError, ValueError) as error:
        log(f"secrets from {head}: {error}")
        return None
    if uid != 0 or not isinstance(answer, dict) or answer.get("number") != request["number"]:
        log(f"secrets from {head}: not the answer of its agent")
        return None
    return answer


def _write(path: str, text: str, mode: int, uid: int, gid: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)
        os.fchown(file.fileno(), uid, gid)
