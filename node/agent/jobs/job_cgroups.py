"""CPU time and memory of jobs, from the cgroups that Slurm makes for them. A cgroup counts all processes of its job, also
those that have ended."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator

from agent.metrics.host import Figure, read_text

CGROUPS = "/sys/fs/cgroup"


class JobCgroups:
    """The jobs' folders under cgroup v1 (.../slurm[_NODE]/uid_1000/job_12) and v2 (.../[NODE_]slurmstepd.scope/job_12)."""

    def __init__(self, root: str = CGROUPS) -> None:
        self._root = root

    def cpu_s(self, job: int) -> float | None:
        """Returns the CPU time of the job in seconds; None if it has no cgroup here."""
        for controller in ("cpuacct", "cpu,cpuacct"):
            for folder in self._folders(controller, job):
                return _whole(read_text(f"{folder}/cpuacct.usage")) / 1e9
        for folder in self._unified(job):
            return _field(f"{folder}/cpu.stat", "usage_usec") / 1e6
        return None

    def memory_bytes(self, job: int) -> int | None:
        """Returns the memory that the job's cgroup is charged for, with the files that the kernel keeps for it; None if it
        has no cgroup here."""
        for folder in self._folders("memory", job):
            return _whole(read_text(f"{folder}/memory.usage_in_bytes"))
        for folder in self._unified(job):
            return _whole(read_text(f"{folder}/memory.current"))
        return None

    def reclaimable_bytes(self, job: int) -> int:
        """Returns how much of `memory_bytes` is files that were not used recently, which the kernel gives up first."""
        for folder in self._folders("memory", job):
            return _field(f"{folder}/memory.stat", "total_inactive_file")
        for folder in self._unified(job):
            return _field(f"{folder}/memory.stat", "inactive_file")
        return 0

    def _folders(self, controller: str, job: int) -> list[str]:
        return _existing(f"{self._root}/{controller}/slurm*/uid_*/job_{job}")

    def _unified(self, job: int) -> list[str]:
        return _existing(f"{self._root}/system.slice/*slurmstepd.scope/job_{job}")


def job_metrics(jobs: Iterable[int], cgroups: JobCgroups | None = None) -> Iterator[Figure]:
    """Yields CPU time and memory in use of each job."""
    known = cgroups or JobCgroups()
    cpu_s = {job: known.cpu_s(job) for job in jobs}
    for job, seconds in cpu_s.items():
        if seconds is not None:
            yield "headway_job_cpu_seconds_total", {"hpc_job": str(job)}, round(seconds, 3)
    for job in cpu_s:
        memory = known.memory_bytes(job)
        if memory is not None:
            in_use = max(0, memory - known.reclaimable_bytes(job))
            yield "headway_job_memory_bytes", {"hpc_job": str(job)}, in_use


def _existing(pattern: str) -> list[str]:
    return [path for path in glob.glob(pattern) if os.path.isdir(path)]


def _field(path: str, name: str) -> int:
    for line in read_text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _whole(value)
    return 0


def _whole(text: str) -> int:
    words = text.split()
    return int(words[0]) if words and words[0].isdigit() else 0
