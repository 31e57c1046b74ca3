"""Answers the nodes' requests for the secrets of jobs, on a head. Headway's server writes the secrets of the cluster to FILE
(node/programs/install_job_secrets.py).

A request is sealed by root of a machine with the cluster's MUNGE key; only root can open the answer. A job may have the secrets
of its user, and those of the team (Slurm account) that it is charged to."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from agent.log import log
from agent.marker_files import whole_lines

FILE = "/var/lib/headway/job-secrets.json"
DELIVERIES = "/var/lib/headway/job-secret-deliveries.jsonl"  # which job got which names, for the server's audit trail
MOST_DELIVERIES = 2000  # lines; when there are more, the older half is deleted
SAME_START_S = 60.0  # the nodes of a job ask within so long when it starts; one line is written for all
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

    def __init__(self, address: str, port: int, munge: Seals, file: str = FILE, deliveries: str = DELIVERIES) -> None:
        super().__init__(daemon=True)
        self._munge, self._file = munge, file
        self._deliveries = Deliveries(deliveries)
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
            asked = json.loads(text)["secrets"]
            job, node, found = int(asked["job"]), str(asked["node"]), choose_secrets(read_secrets(self._file), asked)
        except (ValueError, KeyError, TypeError) as error:
            log(f"request for secrets from {sender}: {error!r}")
            return None
        names = [*found["values"]]
        # Not by `log`, which drops lines: this is the record of which job got what. One write, because threads write too.
        print(
            f"job {job} of {found['user']} on {node} gets {', '.join(names) or 'no secret'}\n", end="", file=sys.stderr
        )
        if names:
            try:
                self._deliveries.record(job, found["user"], names, node, time.time())
            except OSError as error:  # a full disk does not stop jobs
                log(f"deliveries of secrets: {error}")
        return self._munge.seal_for_root(json.dumps({**found, "number": asked.get("number")}).encode())


class Deliveries:
    """Writes one line of JSON for each start of a job that got secrets: {"id", "at", "job", "user", "names"}."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        # Of jobs that start now: when, and the nodes that have asked
        self._recent: dict[tuple[int, str, tuple[str, ...]], tuple[float, set[str]]] = {}

    def record(self, job: int, user: str, names: list[str], node: str, at: float) -> None:
        """Adds the line unless another node of the job has asked just before. `at`: Unix seconds. Raises OSError."""
        key = (job, user, tuple(names))
        with self._lock:
            self._recent = {one: start for one, start in self._recent.items() if 0 <= at - start[0] < SAME_START_S}
            nodes = self._recent.get(key, (at, set[str]()))[1]
            if nodes and node not in nodes:  # a node that asks again belongs to the next start
                nodes.add(node)
                return
            lines = whole_lines(self._path)
            if len(lines) >= MOST_DELIVERIES:
                with open(f"{self._path}.new", "w") as file:
                    file.writelines(lines[-MOST_DELIVERIES // 2 :])
                os.replace(f"{self._path}.new", self._path)
            line = {"id": secrets.token_hex(8), "at": round(at, 3), "job": job, "user": user, "names": names}
            with open(self._path, "a") as file:
                file.write(json.dumps(line) + "\n")
            self._recent[key] = at, {node}


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
