"""The runs that a job logs through MLflow's REST API: answers requests that need no MLflow server, so that logging never waits
for one.

Requests and answers are those of MLflow's REST API 2.0. Requests for which None is returned need the MLflow server."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

API = "/api/2.0/mlflow/"
# Requests that change a run and whose answer contains nothing
CHANGES = frozenset({"log-metric", "log-batch", "log-parameter", "set-tag", "delete-tag", "log-inputs", "outputs"})
RUN_NAME, PARENT = "mlflow.runName", "mlflow.parentRunId"
ARTIFACTS = "mlflow-artifacts:/runs"  # followed by the run; the server knows the run's own folder
FIRST_EXPERIMENT = 900_000_000  # the first id that holds in one job only

Answer = tuple[int, dict[str, Any]]


class Runs:
    """The runs of this job. `ask(method, path, query, body)` asks the MLflow server and returns None if it does not answer."""

    def __init__(self, user: str, ask: Callable[[str, str, str, dict[str, Any] | None], Answer | None]) -> None:
        self._user, self._ask = user, ask
        self._runs: dict[str, dict[str, Any]] = {}
        self._experiments: dict[str, str] = {}  # id -> name
        self.first = ""  # the run whose metrics are those of the job

    def learn(self, name: str, body: dict[str, Any]) -> None:
        """Applies a change that is in the journal."""
        if name == "experiments/create":
            self._experiments[str(body["experiment_id"])] = str(body["name"])
        elif name == "runs/create":
            self._create(body)
        elif name.startswith("runs/") and (run := self._runs.get(_run_id(body))):
            _apply(run, name.removeprefix("runs/"), body)

    def create(self, body: dict[str, Any]) -> Answer:
        """Returns a new run. Completes `body` with its id, name and the name of its experiment."""
        body["run_id"] = uuid.uuid4().hex
        tags = body.setdefault("tags", [])
        named = next((tag["value"] for tag in tags if tag.get("key") == RUN_NAME), "")
        body["run_name"] = body.get("run_name") or named or f"{self._user}-{body['run_id'][:8]}"
        body.setdefault("start_time", int(time.time() * 1000))
        if not named:
            tags.append({"key": RUN_NAME, "value": body["run_name"]})
        if known := self.experiment(str(body.get("experiment_id") or "0")):
            body["experiment_name"] = known["name"]
        return 200, {"run": self._create(body)}

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        number = str(body["run_id"])
        run: dict[str, Any] = {
            "info": {
                "run_id": number,
                "run_uuid": number,
                "run_name": body.get("run_name", ""),
                "experiment_id": str(body.get("experiment_id") or "0"),
                "user_id": str(body.get("user_id") or self._user),
                "status": "RUNNING",
                "start_time": int(body.get("start_time") or 0),
                "artifact_uri": f"{ARTIFACTS}/{number}/artifacts",
                "lifecycle_stage": "active",
            },
            "data": {"metrics": [], "params": [], "tags": [*body.get("tags", [])]},
            "inputs": {},
        }
        self._runs[number] = run
        if not self.first and not any(tag.get("key") == PARENT for tag in run["data"]["tags"]):
            self.first = number
        return run

    def get(self, number: str) -> dict[str, Any] | None:
        """Returns a run: of this job, or one that the MLflow server has."""
        if number not in self._runs:
            answer = self._ask("GET", f"{API}runs/get", f"run_id={number}", None)
            if answer is not None and answer[0] == 200:
                self._runs[number] = answer[1]["run"]
                self.first = self.first or number
        return self._runs.get(number)

    def change(self, name: str, body: dict[str, Any]) -> Answer | None:
        """Applies a change of a run. Returns None if the MLflow server must be asked, because the run is unknown."""
        run = self.get(_run_id(body))
        if run is None:
            return None
        _apply(run, name, body)
        return 200, {"run_info": run["info"]} if name == "update" else {}

    def experiment_named(self, name: str) -> dict[str, Any]:
        """Returns the experiment of this name. Its id holds in this job; the server replaces it by MLflow's own."""
        known = next((number for number, one in self._experiments.items() if one == name), "")
        if not known:
            known = str(FIRST_EXPERIMENT + len(self._experiments))
            self._experiments[known] = name
        return _experiment(known, name)

    def experiment(self, number: str) -> dict[str, Any] | None:
        """Returns an experiment by the id that holds in this job; None for others."""
        name = "Default" if number == "0" else self._experiments.get(number)
        return _experiment(number, name) if name else None

    def has_experiment(self, name: str) -> bool:
        """Returns whether this job has named the experiment before."""
        return name in self._experiments.values()

    def prefix(self, number: str) -> str:
        """Returns the first part of the names of a run's metrics, as metrics of the job: "" for its first run."""
        self.first = self.first or number
        if number == self.first or number not in self._runs:
            return ""
        return f"{self._runs[number]['info'].get('run_name') or number[:8]}/"


def _apply(run: dict[str, Any], name: str, body: dict[str, Any]) -> None:
    """Applies a change to the run that `get` returns."""
    data, info = run.setdefault("data", {}), run["info"]
    if name == "update":
        info |= {key: body[key] for key in ("status", "end_time", "run_name") if body.get(key)}
    elif name == "log-batch":
        for kind in ("metrics", "params", "tags"):
            for one in body.get(kind) or []:
                _put(data, kind, one)
    elif name == "log-metric":
        _put(data, "metrics", {key: body.get(key) for key in ("key", "value", "timestamp", "step")})
    elif name == "log-parameter":
        _put(data, "params", {"key": body.get("key"), "value": body.get("value")})
    elif name == "set-tag":
        _put(data, "tags", {"key": body.get("key"), "value": body.get("value")})
    elif name == "delete-tag":
        data["tags"] = [tag for tag in data.get("tags", []) if tag.get("key") != body.get("key")]


def _put(data: dict[str, Any], kind: str, one: dict[str, Any]) -> None:
    rows = data.setdefault(kind, [])
    for number, row in enumerate(rows):
        if row.get("key") == one.get("key"):
            rows[number] = one
            return
    rows.append(one)


def _experiment(number: str, name: str) -> dict[str, Any]:
    return {
        "experiment_id": number,
        "name": name,
        "artifact_location": f"mlflow-artifacts:/{number}",
        "lifecycle_stage": "active",
    }


def _run_id(body: dict[str, Any]) -> str:
    return str(body.get("run_id") or body.get("run_uuid") or "")
