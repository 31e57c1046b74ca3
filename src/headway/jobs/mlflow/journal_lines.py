"""Parses the journals that headway_train.mlflow_receiver.journal writes. Users can write anything into these files.

A request that MLflow would refuse as a whole because of one part is divided into parts that it can take one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

JOURNALS = ".headway/mlflow"  # below the user's folder
CREATE_EXPERIMENT, CREATE_RUN, ARTIFACT, ASK = "experiments/create", "runs/create", "artifact", "ask"
UPDATE_RUN = "runs/update"
# Requests that change a run
CHANGES = frozenset(
    f"runs/{name}"
    for name in ("log-metric", "log-batch", "log-parameter", "set-tag", "delete-tag", "log-inputs", "outputs", "update")
)
MOST_IN_BATCH = 1000  # metrics of one request: MLflow's limit
_RUN = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"[0-9]{1,10}-[0-9]{1,10}")
_NODE = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One request of a job. `end`: the byte of the journal after the line."""

    name: str
    body: dict[str, Any]
    end: int

    @property
    def run(self) -> str:
        """Returns the id of the run that the request is about; "" if it is about none."""
        return str(self.body.get("run_id") or self.body.get("run_uuid") or "")


def parse_lines(data: bytes, offset: int) -> Iterator[JournalLine | int]:
    """Yields the requests of whole lines that begin at byte `offset`; for a line that can't be read, the byte after it."""
    for line in data.splitlines(keepends=True):
        offset += len(line)
        if not line.strip():
            continue
        try:
            name, body = json.loads(line)
            found = JournalLine(str(name), dict(body), offset)
        except (ValueError, TypeError, RecursionError):
            yield offset
            continue
        yield found if _is_allowed(found) else offset


def _is_allowed(line: JournalLine) -> bool:
    if line.name == CREATE_RUN or line.name in CHANGES:
        return bool(_RUN.fullmatch(line.run))
    if line.name == ARTIFACT:
        size, path = line.body.get("bytes"), str(line.body.get("path"))
        parts = path.split("/")
        is_plain = "." not in parts and ".." not in parts and not path.startswith("/") and unquote(path) == path
        has_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
        return bool(_FILE.fullmatch(str(line.body.get("file")))) and has_size and is_plain
    if line.name == ASK:
        return bool(_NODE.fullmatch(str(line.body.get("node"))))
    return line.name == CREATE_EXPERIMENT and bool(line.body.get("name"))


def merge_metrics(lines: list[JournalLine]) -> list[JournalLine]:
    """Returns the lines with consecutive single metrics of one run in requests of at most MOST_IN_BATCH."""
    found: list[JournalLine] = []
    for line in lines:
        if line.name == "runs/log-metric":
            metric = {key: line.body.get(key) for key in ("key", "value", "timestamp", "step")}
            metric["step"] = metric["step"] or 0
            line = JournalLine("runs/log-batch", {"run_id": line.run, "metrics": [metric]}, line.end)
        if (
            found
            and _has_only_metrics(line)
            and _has_only_metrics(found[-1])
            and found[-1].run == line.run
            and len(found[-1].body["metrics"]) + len(line.body["metrics"]) <= MOST_IN_BATCH
        ):
            both = {"run_id": line.run, "metrics": [*found[-1].body["metrics"], *line.body["metrics"]]}
            found[-1] = JournalLine("runs/log-batch", both, line.end)
        else:
            found.append(line)
    return found


def _has_only_metrics(line: JournalLine) -> bool:
    return (
        line.name == "runs/log-batch"
        and isinstance(line.body.get("metrics"), list)
        and bool(line.body["metrics"])
        and not (line.body.get("params") or line.body.get("tags"))
    )


def divide(line: JournalLine) -> list[JournalLine]:
    """Returns the parts of a request that MLflow refused; [] if it can't be divided."""
    if line.name != "runs/log-batch":
        return []
    lists = {kind: line.body.get(kind) for kind in ("params", "tags", "metrics")}
    rows = [(kind, one) for kind, ones in lists.items() if isinstance(ones, list) for one in ones]
    return [replace(line, body={"run_id": line.run, kind: [one]}) for kind, one in rows] if len(rows) > 1 else []
