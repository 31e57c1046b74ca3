"""Answers the nodes' requests for the secrets of jobs, on a head. Headway's server writes the secrets of the cluster to FILE
(node/programs/install_job_secrets.py).

A request is sealed by root of a machine with the cluster's MUNGE key; only root can open the answer. A job may have the secrets
of its user, and those of the team (Slurm account) that it is charged to."""

from __future__ import annotations

import json
import pwd
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from agent.log import log

FILE = "/var/lib/headway/job-secrets.json"
ANSWER_S = 5.0
MOST_REQUEST = 16 * 1024  # bytes
MOST_CONNECTIONS = 256
MOST_OF_ADDRESS = 16


class Seals(Protocol):
    """The part of agent.munge.Munge that this module needs."""

    def open(self, sealed: bytes) -> tuple[bytes, int]: ...

    def seal_for_root(self, data: bytes) -> bytes: ...


class SecretServer(threading.Thread):
    """Listens on `address`:`port` (TCP), one thread for each connection."""

    def __init__(self, address: str, port: int, munge: Seals, file: str = FILE) -> None:
        super().__init__(daemon=True)
        self._munge, self._file = munge, file
        self._open = Counter[str]()
        self._lock = threading.Lock()
        self._socket = socket.create_server((address, port), backlog=1024)

    @property
    def port(self) -> int:
        """Returns the port it listens on."""
        return int(self._socket.getsockname()[1])

    def run(self) -> None:
        """Accepts connections for ever. Any user of a node can connect, so the connections of one address are limited."""
        while True:
            connection, sender = self._socket.accept()
            with self._lock:
                full = self._open[sender[0]] >= MOST_OF_ADDRESS or self._open.total() >= MOST_CONNECTIONS
                self._open[sender[0]] += not full
            if full:
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection, sender[0]), daemon=True).start()

    def _serve(self, connection: socket.socket, sender: str) -> None:
        try:
            with connection:
                connection.settimeout(ANSWER_S)
                answer = self.answer(_read(connection), sender)
                if answer is not None:
                    connection.sendall(answer)
        except OSError as error:
            log(f"secrets for {sender}: {error}")
        finally:
            with self._lock:
                self._open[sender] -= 1

    def answer(self, request: bytes, sender: str) -> bytes | None:
        """Returns the answer, which only root can open; None for a request that root of a node has not sealed."""
        try:
            text, uid = self._munge.open(request)
        except OSError as error:
            log(f"request for secrets from {sender}: {error}")
            return None
        if uid != 0:
            log(f"request for secrets from {sender}: sealed by uid {uid}, not by root")
            return None
        try:
            request_fields = json.loads(text)["secrets"]
            found = choose_secrets(read_secrets(self._file), request_fields)
        except (ValueError, KeyError, TypeError) as error:
            log(f"request for secrets from {sender}: {error!r}")
            return None
        found["number"] = request_fields.get("number")
        names = ", ".join(found["values"]) or "no secret"
        # Not by `log`, which drops lines: this is the record of which job got what. One write, because threads write too.
        text = f"job {request_fields.get('job')} of {found['user']} on {request_fields.get('node')} gets {names}\n"
        print(text, end="", file=sys.stderr, flush=True)
        return self._munge.seal_for_root(json.dumps(found).encode())


def read_secrets(file: str) -> dict[str, Any]:
    """Returns the cluster's secrets: {"revision", "users": {user: {name: value}}, "teams": {team: {name: value}}}; revision 0
    if Headway's server has not sent them yet."""
    try:
        with open(file, encoding="utf-8") as opened:
            return dict(json.load(opened))
    except FileNotFoundError:
        return {"revision": 0, "users": {}, "teams": {}}


def choose_secrets(
    known: dict[str, Any], request: dict[str, Any], user_of: Callable[[int], str] | None = None
) -> dict[str, Any]:
    """Returns {"revision", "user", "values": {name: value}, "missing": [names]} for a job. A user's own secret comes before
    one of the team with the same name."""
    user = (user_of or _user_name)(int(request["uid"]))
    own = known["users"].get(user, {})
    of_team = known["teams"].get(str(request.get("account", "")), {})
    names = [str(name) for name in request["names"]]
    values = {name: own.get(name, of_team.get(name)) for name in names}
    return {
        "revision": int(known["revision"]),
        "user": user,
        "values": {name: value for name, value in values.items() if value is not None},
        "missing": [name for name in names if values[name] is None],
    }


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"  # no user has such a name, so no secret is found


def _read(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
        if len(data) > MOST_REQUEST:
            raise OSError("the request is too long")
    return data
