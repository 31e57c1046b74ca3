"""Answers the nodes' requests for the secrets of jobs, on a head. Headway's server writes the secrets of the cluster to
JOB_SECRETS_FILE (node/programs/install_job_secrets.py).

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
from typing import Any

from agent.log import log
from agent.marker_files import whole_lines
from agent.munge import Seals

JOB_SECRETS_FILE = "/var/lib/headway/job-secrets.json"
# Which job got which names, for the server's audit trail
SECRET_DELIVERIES_FILE = "/var/lib/headway/job-secret-deliveries.jsonl"
MOST_DELIVERIES = 2000  # lines; when there are more, the older half is deleted
SAME_START_S = 60.0  # the nodes of a job ask within so long when it starts; one line is written for all
ANSWER_S = 5.0  # for all of a request, and for all of an answer
PAUSE_S = 0.1  # after a connection could not be accepted
MOST_REQUEST = 16 * 1024  # bytes
MOST_CONNECTIONS = 256
MOST_OF_ADDRESS = 16


class SecretServer(threading.Thread):
    """Listens on `address`:`port` (TCP), one thread for each connection."""

    def __init__(
        self,
        address: str,
        port: int,
        munge: Seals,
        file: str = JOB_SECRETS_FILE,
        deliveries: str = SECRET_DELIVERIES_FILE,
        pause_s: float = PAUSE_S,
    ) -> None:
        super().__init__(daemon=True)
        self._munge, self._file, self._pause_s = munge, file, pause_s
        self._deliveries = Deliveries(deliveries)
        self._open = Counter[str]()
        self._lock = threading.Lock()
        self._socket = socket.create_server((address, port), backlog=1024)

    @property
    def port(self) -> int:
        """Returns the port it listens on."""
        return int(self._socket.getsockname()[1])

    def run(self) -> None:
        """Accepts connections for ever, at most MOST_OF_ADDRESS of one machine at the same time."""
        while True:
            try:
                self._accept()
            except (OSError, RuntimeError) as error:  # no file or thread is left: other connections will end
                log(f"requests for secrets are not accepted: {error}")
                time.sleep(self._pause_s)

    def _accept(self) -> None:
        connection, sender = self._socket.accept()
        address = sender[0]
        with self._lock:
            full = self._open[address] >= MOST_OF_ADDRESS or self._open.total() >= MOST_CONNECTIONS
            self._open[address] += not full
        if full:
            connection.close()
            return
        try:
            threading.Thread(target=self._serve, args=(connection, address), daemon=True).start()
        except RuntimeError:
            self._close(connection, address)
            raise

    def _close(self, connection: socket.socket, address: str) -> None:
        connection.close()
        with self._lock:
            self._open[address] -= 1

    def _serve(self, connection: socket.socket, address: str) -> None:
        try:
            request = read_until_closed(connection, MOST_REQUEST, time.monotonic() + ANSWER_S)
            answer = self.answer(request, address)
            if answer is not None:
                connection.settimeout(ANSWER_S)
                connection.sendall(answer)
        except OSError as error:
            log(f"secrets for {address}: {error}")
        finally:
            self._close(connection, address)

    def answer(self, sealed: bytes, sender: str) -> bytes | None:
        """Returns the answer, which only root can open; None for a request that root of a node has not sealed."""
        try:
            text, uid = self._munge.open(sealed)
        except OSError as error:
            log(f"request for secrets from {sender}: {error}")
            return None
        if uid != 0:
            log(f"request for secrets from {sender}: sealed by uid {uid}, not by root")
            return None
        try:
            request = json.loads(text)["secrets"]
            job, node = int(request["job"]), str(request["node"])
            chosen = choose_secrets(read_secrets(self._file), request)
        except (ValueError, KeyError, TypeError) as error:
            log(f"request for secrets from {sender}: {error!r}")
            return None
        names = [*chosen["values"]]
        # Not by `log`, which drops lines: this is the record of which job got what. One write, because threads write too.
        print(
            f"job {job} of {chosen['user']} on {node} gets {', '.join(names) or 'no secret'}\n", end="", file=sys.stderr
        )
        if names:
            try:
                self._deliveries.record(job, chosen["user"], names, node, time.time())
            except OSError as error:  # a full disk does not stop jobs
                log(f"deliveries of secrets: {error}")
        return self._munge.seal_for_root(json.dumps({**chosen, "number": request.get("number")}).encode())


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
                with open(f"{self._path}.new", "w", opener=_for_root) as file:
                    file.writelines(lines[-MOST_DELIVERIES // 2 :])
                os.replace(f"{self._path}.new", self._path)
            line = {"id": secrets.token_hex(8), "at": round(at, 3), "job": job, "user": user, "names": names}
            with open(self._path, "a", opener=_for_root) as file:
                file.write(json.dumps(line) + "\n")
            self._recent[key] = at, {node}


def read_secrets(file: str) -> dict[str, Any]:
    """Returns the cluster's secrets: {"revision", "users": {user: {name: value}}, "teams": {team: {name: value}},
    "members": {team: [users]}}; revision 0 if Headway's server has not sent them yet."""
    try:
        with open(file, encoding="utf-8") as opened:
            return dict(json.load(opened))
    except FileNotFoundError:
        return {"revision": 0, "users": {}, "teams": {}, "members": {}}


def choose_secrets(
    stored: dict[str, Any], request: dict[str, Any], user_of: Callable[[int], str] | None = None
) -> dict[str, Any]:
    """Returns {"revision", "user", "values": {name: value}, "missing": [names]} for a job. A user's own secret comes before
    one of the team with the same name. Who has left the team gets none of it, though Slurm may still allow the account."""
    user = (user_of or _user_name)(int(request["uid"]))
    own = stored["users"].get(user, {})
    team = str(request.get("account", ""))
    of_team = stored["teams"].get(team, {}) if user in stored["members"].get(team, ()) else {}
    names = [str(name) for name in request["names"]]
    values = {name: own.get(name, of_team.get(name)) for name in names}
    return {
        "revision": int(stored["revision"]),
        "user": user,
        "values": {name: value for name, value in values.items() if value is not None},
        "missing": [name for name in names if values[name] is None],
    }


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"  # no user has such a name, so no secret is found


def read_until_closed(connection: socket.socket, most: int, deadline: float) -> bytes:
    """Returns all that the other side sends until it closes its direction. Raises OSError if that is more than `most` bytes
    or not complete at `deadline` (time.monotonic): a limit for each piece would not bound the whole."""
    data = bytearray()
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the message was not complete in time")
        connection.settimeout(left_s)
        piece = connection.recv(1 << 16)
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > most:
            raise OSError(f"the message has more than {most} bytes")


def _for_root(path: str, flags: int) -> int:
    """An opener for files that only root reads."""
    return os.open(path, flags, 0o600)
