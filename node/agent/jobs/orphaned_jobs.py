"""Finds jobs whose batch script has lost its slurmstepd. Slurm notices minutes later, and the job counts as running
until then."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent.metrics.host import read_text

_STEP = re.compile(r"slurmstepd: \[(\d+)(?:\+\d+)?\.(batch|extern)\]")


class OrphanedJobs:
    """Finds jobs whose batch step lost its slurmstepd, from repeated readings of the processes. At a job's end the
    slurmstepd of the extern step ends too, before the epilog begins. So if the extern step's slurmstepd is still there
    and the batch step's is missing twice in a row, the latter has died."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._had: set[int] = set()  # jobs whose batch script ran here
        self._missed: set[int] = set()  # jobs without the batch step's slurmstepd at the last reading

    def find_new(self, daemons: Iterable[int]) -> list[int]:
        """Returns the jobs lost since the last call, each once. `daemons`: pids of root's processes named
        slurmstepd."""
        found: dict[str, set[int]] = {"batch": set(), "extern": set()}
        for pid in daemons:
            match = _STEP.search(read_text(f"{self._proc}/{pid}/cmdline"))
            if match:
                found[match[2]].add(int(match[1]))
        missing = (self._had & found["extern"]) - found["batch"]
        lost = missing & self._missed
        self._missed = missing - lost
        self._had = (self._had & found["extern"] | found["batch"]) - lost
        return sorted(lost)
