"""Answers the requests of one job to MLflow's REST API.

What a job logs is written to the job's journal (`journal`) and, as far as it is numbers, to its metrics. Requests whose
answer only the MLflow server knows (searches, models, downloads) wait until Headway's server takes them at a socket in the
journal's folder: a node has no other way to the server."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from headway_train import metrics_file
from headway_train.event_follower import metric_name, notify
from headway_train.mlflow_receiver.journal import Journal
from headway_train.mlflow_receiver.runs import API, CHANGES, Answer, Runs

ASK_S = 60.0  # the longest wait for Headway's server
COPY_S = 600.0  # the longest time for an answer to be read
NOTE_S = 2.0  # between two notes in the journal that a request waits
_PART = 1 << 20


class Asked:
    """A request that waits for Headway's server."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.answered, self.copied = threading.Event(), threading.Event()
        self.status, self.type, self.size = 503, "application/json", 0
        self.source: Any = None  # of the answer's `size` bytes, until `copied` is set

    def read(self) -> bytes:
        """Returns the whole answer."""
        data: bytes = self.source.read(self.size)
        self.copied.set()
        return data


class Questions:
    """Requests that wait for Headway's server, and its answers. `note` is called when one begins to wait."""

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Asked]] = deque()
        self._open: dict[int, Asked] = {}
        self._last = 0
        self._takers = 0  # of the server, that wait for a request
        self._noted = -NOTE_S

    def ask(self, one: Asked) -> bool:
        """Waits for an answer. Returns whether there is one."""
        with self._changed:
            self._last += 1
            number = self._last
            self._open[number] = one
            self._waiting.append((number, one))
            self._changed.notify()
            away = not self._takers and time.monotonic() - self._noted >= NOTE_S
            if away:
                self._noted = time.monotonic()
        if away:
            self._note()
        answered = one.answered.wait(ASK_S)
        with self._changed:
            self._open.pop(number, None)
        return answered

    def next(self, wait_s: float) -> tuple[int, Asked] | None:
        """Returns the next request for the server; None if there is none within `wait_s` seconds."""
        until = time.monotonic() + wait_s
        with self._changed:
            self._takers += 1
            try:
                while True:
                    while self._waiting:
                        number, one = self._waiting.popleft()
                        if number in self._open:
                            return number, one
                    left = until - time.monotonic()
                    if left <= 0:
                        return None
                    self._changed.wait(left)
            finally:
                self._takers -= 1

    def answer(self, number: int, status: int, kind: str, source: Any, size: int) -> None:
        """Passes the server's answer on, and waits until it was read from `source`."""
        with self._changed:
            one = self._open.get(number)
        if one is not None:
            one.status, one.type, one.source, one.size = status, kind, source, size
            one.answered.set()
            one.copied.wait(COPY_S)


class Receiver:
    """Answers the requests of one job."""

    def __init__(self, journal: Journal, runs: Runs, token: str, began: float) -> None:
        self._journal, self._runs, self._token = journal, runs, token
        self._lock = threading.Lock()
        self._metrics = metrics_file.MetricsFile(began)
        self.questions = Questions(lambda: journal.write("ask", {"node": journal.node}))

    def allows(self, authorization: str) -> bool:
        """Returns whether a request carries the job's token."""
        return secrets.compare_digest(authorization.encode(), f"Bearer {self._token}".encode())

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer | None:
        """Answers a request, after it is in the journal. Returns None if only the MLflow server can answer it."""
        if path == "/api/3.0/mlflow/server-info":
            return 200, {"store_type": "SqlStore", "workspaces_enabled": False}
        if not path.startswith(API):
            return None
        name = path.removeprefix(API)
        with self._lock:
            if name.startswith("experiments/"):
                return self._experiment(name.removeprefix("experiments/"), query, body)
            if name == "runs/create" and method == "POST":
                made = self._runs.create(body)
                self._journal.write(name, body)
                return made
        if name == "runs/get":
            run = self._runs.get(query.get("run_id") or query.get("run_uuid") or "")
            return (200, {"run": run}) if run is not None else None
        change = name.removeprefix("runs/")
        if method == "POST" and name.startswith("runs/") and (change in CHANGES or change == "update"):
            changed = self._runs.change(change, body)
            if changed is not None:
                self._journal.write(name, body)
                self._keep(change, body)
            return changed
        return None

    def _experiment(self, name: str, query: dict[str, str], body: dict[str, Any]) -> Answer | None:
        if name == "get":
            known = self._runs.experiment(query.get("experiment_id", ""))
            return (200, {"experiment": known}) if known else None
        if name not in ("get-by-name", "create"):
            return None
        wanted = query.get("experiment_name") or str(body.get("name") or "Default")
        before = self._runs.has_experiment(wanted)
        found = self._runs.experiment_named(wanted)
        if not before:
            self._journal.write("experiments/create", {"name": wanted, "experiment_id": found["experiment_id"]})
        elif name == "create":
            return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": f"Experiment '{wanted}' already exists."}
        return 200, {"experiment": found} if name == "get-by-name" else {"experiment_id": found["experiment_id"]}

    def _keep(self, change: str, body: dict[str, Any]) -> None:
        """Writes metrics of a run to the job's metrics, and sends the newest to the node's agent."""
        if change not in ("log-batch", "log-metric"):
            return
        prefix = self._runs.prefix(str(body.get("run_id") or body.get("run_uuid") or ""))
        steps: dict[tuple[Any, Any], dict[str, Any]] = {}
        for one in (body.get("metrics") or []) if change == "log-batch" else [body]:
            with contextlib.suppress(TypeError, ValueError):
                at = (int(one.get("step") or 0), int(one.get("timestamp") or 0) // 1000)
                steps.setdefault(at, {})[metric_name(prefix + str(one["key"]))] = one.get("value")
        for (step, seconds), values in steps.items():
            self._metrics.add({"step": step, **values}, seconds or time.time())
        self._metrics.write()
        if steps:
            (step, _), values = max(steps.items(), key=lambda item: item[0][0])
            notify({"step": step, **values})

    def upload(self, path: str, source: Any, size: int) -> None:
        """Keeps an uploaded file for the server. Raises OSError."""
        target = self._journal.new_file()
        with target.open("xb") as out:
            left = size
            while left > 0:
                part = source.read(min(_PART, left))
                if not part:
                    raise OSError("the upload ended early")
                out.write(part)
                left -= len(part)
        self._journal.write("artifact", {"path": path, "file": target.name, "bytes": size})
