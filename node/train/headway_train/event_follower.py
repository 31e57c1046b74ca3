"""Reports the scalars of TensorBoard event files as metrics, for trainings that write such files and call no `report`.

`python3 -m headway_train COMMAND` follows the folder $HEADWAY_TENSORBOARD_DIR while the command runs. Event files that were
there before the job are left out: they belong to other jobs. A file next to the job's metrics says how far each was read, so that
a requeued job continues."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from headway_train import metrics_file
from headway_train.event_files import NAME, Damaged, Scalar, read_scalars

EVERY_S = 5.0
LAST_S = 20.0  # the longest wait for storage at the end of the training
MOST_FILES = 200
MOST_FOLDERS = 2000  # looked through in one round
_BATCH = 20_000  # values between two writes
# Folders that name a run and not a kind of values: of SummaryWriter (Nov29_12-00-00_host) and of Lightning (version_0).
_RUN_FOLDER = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.*|version_\d+")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-/ ]")


class EventFollower:
    """Follows the event files below a folder. `follow` runs in a thread until `close`."""

    def __init__(self, folder: Path, began: float) -> None:
        self._folder = folder
        self._metrics = metrics_file.MetricsFile(began)
        self._read: dict[str, int] = {}
        self._place: Path | None = None
        self._damaged: set[str] = set()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Notes the files of other jobs, and begins to follow."""
        self._place = _state_file()
        if self._place is None:
            return
        try:
            self._read = {str(path): int(at) for path, at in json.loads(self._place.read_text()).items()}
        except (OSError, ValueError, AttributeError):
            self._read = {path: os.stat(path).st_size for path in self._files()}
            self._save()
        self._thread = threading.Thread(target=self._run, name="headway event files", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Reads what is left. Waits at most LAST_S."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(LAST_S)

    def read_new(self) -> None:
        """Reports what the files have gained."""
        for path in self._files():
            if path not in self._damaged:
                try:
                    with contextlib.suppress(OSError):  # storage that does not answer is asked again
                        self._read_file(path)
                except Damaged as error:
                    self._damaged.add(path)
                    print(f"headway_train: event file left out: {error}", file=sys.stderr, flush=True)

    def _run(self) -> None:
        while True:
            closing = self._closing.wait(EVERY_S)
            with contextlib.suppress(Exception):  # the training's own output must not show a fault of this thread
                self.read_new()
            if closing:
                return

    def _read_file(self, path: str) -> None:
        """Reports new values; those of one step and time together."""
        prefix, begin = self._prefix(path), self._read.get(path, 0)
        end = begin
        waiting: list[Scalar] = []
        count = 0
        for end, scalars in read_scalars(path, begin):
            for scalar in scalars:
                if waiting and (scalar.step != waiting[0].step or any(scalar.tag == one.tag for one in waiting)):
                    self._report(prefix, waiting)
                    waiting = []
                waiting.append(scalar)
                count += 1
            if count >= _BATCH:
                self._report(prefix, waiting)
                waiting, count = [], 0
                self._written(path, end)
        self._report(prefix, waiting)
        if end != begin:
            self._written(path, end)

    def _report(self, prefix: str, scalars: list[Scalar]) -> None:
        if scalars:
            values: dict[str, Any] = {metric_name(prefix + one.tag): one.value for one in scalars}
            self._metrics.add({"step": scalars[0].step, **values}, scalars[-1].at)
            notify({"step": scalars[0].step, **values})

    def _written(self, path: str, end: int) -> None:
        """Writes the metrics, then how far the file was read: a killed process repeats values rather than losing them."""
        self._metrics.write()
        self._read[path] = end
        self._save()

    def _save(self) -> None:
        assert self._place is not None
        self._place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._place.with_suffix(".new")
        new.write_text(json.dumps(self._read))
        new.rename(self._place)

    def _files(self) -> list[str]:
        """Returns the event files below the folder, by name."""
        found: list[str] = []
        for number, (place, folders, names) in enumerate(os.walk(self._folder)):
            folders.sort()
            found += [os.path.join(place, name) for name in sorted(names) if NAME in name]
            if number >= MOST_FOLDERS or len(found) >= MOST_FILES:
                break
        return found[:MOST_FILES]

    def _prefix(self, path: str) -> str:
        """Returns the folders of a file that tell its values from those of other files, with a slash at the end."""
        parts = Path(path).relative_to(self._folder).parent.parts
        return "".join(f"{part}/" for part in parts if not _RUN_FOLDER.fullmatch(part))


def metric_name(tag: str) -> str:
    """Returns the name of a metric for a tag: other characters than letters, digits and `_ . - /` and spaces become `_`."""
    name = _NOT_IN_NAMES.sub("_", tag)
    return (name if name[:1].isalpha() or name[:1] == "_" else f"_{name}")[:128]


def follow(began: float | None = None) -> EventFollower | None:
    """Returns a follower of $HEADWAY_TENSORBOARD_DIR that has begun; None outside of a job, in other tasks than the first, and
    if the variable is not set."""
    folder = os.environ.get("HEADWAY_TENSORBOARD_DIR", "")
    first = int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0) == 0
    if not folder or not first or not os.environ.get("SLURM_JOB_ID", "").isdigit():
        return None
    follower = EventFollower(Path(folder).absolute(), time.time() if began is None else began)
    with contextlib.suppress(Exception):
        follower.start()
    return follower


def notify(values: dict[str, Any]) -> None:
    """Sends the newest values to the node's agent, for the queue; never raises."""
    from headway_train import progress

    with contextlib.suppress(Exception):
        progress.send_newest(values)


def _state_file() -> Path | None:
    folder = metrics_file.default_folder()
    return folder / f"{int(os.environ['SLURM_JOB_ID'])}.events.json" if folder else None
