"""How far the journal of each job was repeated on the MLflow server: a small file for each job in the server's data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class JournalState:
    """`path` and `offset`: the journal, and up to which byte it was repeated. `experiments`: names by the ids that hold in the
    job. `runs`: the state of each run, RUNNING until the job ended it. `refused`: requests that MLflow refused or that could
    not be read; `why`: the newest reason. `waiting`: bytes that were not repeated yet."""

    path: str = ""
    offset: int = 0
    experiments: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    refused: int = 0
    why: str = ""
    waiting: int = 0


class JournalStates:
    """The states of all jobs, below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, cluster: str, job: int) -> JournalState:
        """Returns the state of a job's journal; a new one if there is none."""
        try:
            return JournalState(**json.loads(self._path(cluster, job).read_text()))
        except (OSError, ValueError, TypeError):
            return JournalState()

    def write(self, cluster: str, job: int, state: JournalState) -> None:
        """Stores the state, atomically."""
        path = self._path(cluster, job)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(state)))
        new.rename(path)

    def waiting(self) -> dict[str, int]:
        """Returns the number of bytes that wait, by cluster."""
        found: dict[str, int] = {}
        for path in self._folder.glob("*/*.json"):
            cluster, job = path.parent.name, path.stem
            if job.isdigit() and (bytes_left := self.read(cluster, int(job)).waiting):
                found[cluster] = found.get(cluster, 0) + bytes_left
        return found

    def _path(self, cluster: str, job: int) -> Path:
        return self._folder / cluster / f"{job}.json"
