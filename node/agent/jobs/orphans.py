"""Finds jobs whose batch script has lost its slurmstepd. Slurm notices minutes later, and the job counts as running
until then."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent.metrics.host import read_text

_STEP = re.compile(r"slurmstepd: \[(\d+)(?:\+\d+)?\.(batch|extern)\]")


class OrphanedJobs:
    """Fed with each reading of the processes. A job's end takes the daemon of its extern step along before its epilog begins:
    where that one stays and the batch step's is gone twice in a row, it has died."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._had: set[int] = set()  # jobs whose batch script ran here
        self._missed: set[int] = set()  # at the last reading

    def find_new(self, daemons: Iterable[int]) -> list[int]:
        """`daemons`: processes of root's that are called slurmstepd. The jobs that were lost since the last look, each once."""
        found: dict[str, set[int]] = {"batch": set(), "extern": set()}
        for pid in daemons:
            said = _STEP.search(read_text(f"{self._proc}/{pid}/cmdline"))
            if said:
                found[said[2]].add(int(said[1]))
        missing = (self._had & found["extern"]) - found["batch"]
        lost = missing & self._missed
        self._missed = missing - lost
        self._had = (self._had & found["extern"] | found["batch"]) - lost
        return sorted(lost)
