"""Writes every reported number to a file on shared storage, which the server reads as the job's user.

The file is `.headway/metrics/JOB.jsonl` in the user's folder on scratch, or in their home where there is no scratch. Its lines:

    {"run": 1700000000.5}            a process begins: Unix seconds
    {"names": ["loss", "lr"]}        names of the numbers of the following lines
    [120, 1700000012.25, 1.5, null]  step (null: as before), Unix seconds, numbers; null: this report lacks it
    {"dropped": 12}                  reports that were not kept, with the reason on standard error

A thread writes once a second, so a training never waits for storage."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = ".headway/metrics"
IN_CONTAINER = Path("/run/headway/metrics")  # where a container has the user's folder of metrics
SCRATCH = Path("/scratch")
EVERY_S = 1.0
LAST_S = 5.0  # the longest wait for storage at the end of the training
MOST_NUMBERS = 600_000  # numbers kept in a minute
MOST_WAITING = 200_000  # numbers that wait in memory for storage
MOST_NAMES = 1000


def default_folder() -> Path | None:
    """Returns the folder of this user's metrics, $HEADWAY_METRICS_DIR if set; None where no shared folder is found."""
    if given := os.environ.get("HEADWAY_METRICS_DIR"):
        return Path(given)
    if IN_CONTAINER.is_dir():
        return IN_CONTAINER
    mine = SCRATCH / (os.environ.get("USER") or str(os.getuid()))
    home = Path(os.environ.get("HOME", ""))
    return next((place / FOLDER for place in (mine, home) if place.is_absolute() and place.is_dir()), None)


class MetricsFile:
    """Keeps reports in memory and writes them to the job's file. `add` never waits and never raises for full storage."""

    def __init__(self, began: float, every_s: float = EVERY_S) -> None:
        self._began = began
        self._every_s = every_s
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: list[tuple[float, dict[str, Any]]] = []
        self._numbers = 0  # in `_waiting`
        self._minute, self._in_minute = 0, 0
        self._dropped = 0
        self._said: set[str] = set()
        self._file: int | None = None
        self._end = 0  # of the file after the last write here
        self._names: dict[str, None] = {}
        self._due = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, values: dict[str, Any], now: float) -> None:
        """Keeps a report for the file. `now`: Unix seconds. Values on a GPU are read by the thread that writes."""
        kept = {name: _detached(value) for name, value in values.items() if value is not None}
        minute = int(now // 60)
        with self._lock:
            if minute != self._minute:
                self._minute, self._in_minute = minute, 0
            if self._in_minute + len(kept) > MOST_NUMBERS:
                self._drop(f"more than {MOST_NUMBERS:,} numbers a minute are reported; report fewer steps")
                return
            if self._numbers + len(kept) > MOST_WAITING:
                self._drop("the storage of the metrics is too slow, or does not answer")
                return
            self._in_minute += len(kept)
            self._numbers += len(kept)
            self._waiting.append((now, kept))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headway metrics", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Writes what is left. Waits at most LAST_S: a training must end also where its storage does not answer."""
        if self._thread is None:
            return
        last = threading.Thread(target=self.write, name="headway metrics, last", daemon=True)
        last.start()
        last.join(LAST_S)

    def write(self) -> None:
        """Writes the kept reports. A failure is said once on standard error, and the reports are counted as dropped."""
        with self._writing:
            with self._lock:
                reports, self._waiting, self._numbers = self._waiting, [], 0
                dropped, self._dropped = self._dropped, 0
            if not reports and not dropped:
                return
            try:
                self._append(self._lines(reports, dropped))
            except (OSError, ValueError) as error:
                self._file, self._names = None, {}  # a line may be incomplete: begin again
                with self._lock:
                    self._dropped += dropped + len(reports) - 1
                    self._drop(str(error))

    def _run(self) -> None:
        while True:
            self._due.wait(self._every_s)
            with contextlib.suppress(Exception):  # the training's own output must not show a fault of this thread
                self.write()

    def _drop(self, why: str) -> None:
        """Counts a report that is not kept, and says why once."""
        self._dropped += 1
        if why not in self._said:
            self._said.add(why)
            print(f"headway_train: not all reported numbers are kept: {why}", file=sys.stderr, flush=True)

    def _lines(self, reports: list[tuple[float, dict[str, Any]]], dropped: int) -> bytes:
        """Returns the lines of these reports."""
        lines = [json.dumps({"dropped": dropped})] if dropped else []
        for at, values in reports:
            numbers = {name: number for name, value in values.items() if (number := _number(value)) is not None}
            step = numbers.pop("step", None)
            if not numbers.keys() <= self._names.keys() and len(self._names) < MOST_NAMES:
                self._names |= dict.fromkeys(numbers)
                lines.append(json.dumps({"names": list(self._names)}))
            whole = None if step is None or step != step or abs(step) == float("inf") else int(step)
            lines.append(json.dumps([whole, round(at, 3), *map(numbers.get, self._names)]))
        return "\n".join(lines).encode() + b"\n"

    def _append(self, data: bytes) -> None:
        if self._file is None:
            folder = default_folder()
            if folder is None:
                raise OSError(
                    "neither scratch nor home is here; in a container, mount one (--container-mounts=/scratch)"
                )
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = folder / f"{int(os.environ['SLURM_JOB_ID'])}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # A killed process may have left half a line.
            data = b"\n" + json.dumps({"run": self._began}).encode() + b"\n" + data
        elif os.fstat(self._file).st_size != self._end:  # event_follower and the training itself may both report
            data = json.dumps({"names": list(self._names)}).encode() + b"\n" + data
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self._end = os.lseek(self._file, 0, os.SEEK_CUR)


def _detached(value: Any) -> Any:
    """Returns a number, or a copy of a tensor on a GPU: reading it here would wait for the GPU, and the training may change
    it in place."""
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach()
    return tensor.clone() if tensor.device.type != "cpu" else _number(tensor)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


_file: MetricsFile | None = None


def keep(values: dict[str, Any], began: float) -> None:
    """Keeps a report of rank 0 for the file of the job; does nothing outside of a job."""
    global _file
    if not os.environ.get("SLURM_JOB_ID", "").isdigit():
        return
    if _file is None:
        _file = MetricsFile(began)
        atexit.register(_file.close)
    _file.add(values, time.time())
