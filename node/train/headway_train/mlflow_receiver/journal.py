"""The journal of what a job logs through MLflow: a file that the server reads as the job's user and repeats on the MLflow server.

The file is `.headway/mlflow/JOB.jsonl` next to the job's metrics. Its lines:

    ["runs/log-batch", {...}]            a request of MLflow's REST API 2.0, with its body
    ["artifact", {"path": ..., "file": ..., "bytes": N}]   an uploaded file, kept next to the journal until the server has it
    ["ask", {"node": ...}]               a request waits for an answer of the MLflow server, on this node at JOB-NODE.sock

A line is written before its request is answered, so a killed job loses nothing that was answered."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway_train import metrics_file

MOST_LINE = 900_000  # bytes; the server reads a megabyte at a time
FOLDER = "mlflow"  # next to the folder of the metrics


def default_folder() -> Path | None:
    """Returns the folder of this user's journals; None where no shared folder is found."""
    metrics = metrics_file.default_folder()
    return metrics.parent / FOLDER if metrics is not None else None


class Journal:
    """The journal of one job. `write` raises OSError if its storage refuses the line, and ValueError if it is too long."""

    def __init__(self, folder: Path, job: str) -> None:
        self._folder, self._job = folder, job
        self._lock = threading.Lock()
        self._file: int | None = None
        self._files = 0
        self.node = socket.gethostname()

    @property
    def path(self) -> Path:
        """Returns the path of the journal."""
        return self._folder / f"{self._job}.jsonl"

    @property
    def socket(self) -> Path:
        """Returns the path of the socket at which the server takes requests that need an answer."""
        return self._folder / f"{self._job}-{self.node}.sock"

    def read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the complete lines of earlier runs of this job."""
        try:
            with self.path.open("rb") as lines:
                for line in lines:
                    with contextlib.suppress(ValueError, TypeError):
                        name, body = json.loads(line)
                        yield str(name), dict(body)
        except OSError:
            return

    def write(self, name: str, body: dict[str, Any]) -> None:
        """Appends a line."""
        data = json.dumps([name, body], separators=(",", ":")).encode() + b"\n"
        if len(data) > MOST_LINE:
            raise ValueError(f"a request may have {MOST_LINE} bytes")
        with self._lock:
            if self._file is None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                data = b"\n" + data  # a killed process may have left half a line
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]

    def new_file(self) -> Path:
        """Returns the path for the next uploaded file."""
        with self._lock:
            self._files += 1
            folder = self._folder / f"{self._job}.files"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return folder / f"{os.getpid()}-{self._files}"
