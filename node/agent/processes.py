"""Lists processes, and tells which Slurm job a process belongs to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from agent.metrics.host import read_text

# v1: .../slurm/uid_1000/job_12/step_0/...   v2: .../system.slice/[NODE_]slurmstepd.scope/job_12/step_0/...
_CGROUP = re.compile(r"(?:/slurm(?:_[^/]+)?/uid_\d+|/system\.slice/(?:[^/]+_)?slurmstepd\.scope)/job_(\d+)(?:/|$)")


def job_of(pid: int, uid: int, proc: str = "/proc") -> int | None:
    """Returns the Slurm job to which this process of `uid` belongs; None if it belongs to no job or has ended."""
    try:
        if os.stat(f"{proc}/{pid}").st_uid != uid:  # the pid was reused by another process
            return None
        # users may name cgroup folders with any bytes
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            mine = _paths(file.read())
        with open(f"{proc}/1/cgroup", encoding="utf-8", errors="replace") as file:
            roots = _paths(file.read())
    except OSError:
        return None
    for controller, path in mine.items():
        # A user may own a subtree and name folders in it freely. Only the top of the machine's own tree is made
        # by root.
        root = roots.get(controller, "/").removesuffix("/init.scope").removesuffix("/")
        found = _CGROUP.match(path.removeprefix(root))
        if found:
            return int(found[1])
    return None


def list_processes(proc: str = "/proc") -> Iterator[tuple[int, str, str]]:
    """Yields (pid, name, state) of all processes."""
    for name in os.listdir(proc):
        if name.isdigit():
            stat = read_text(f"{proc}/{name}/stat")
            state = stat[stat.rfind(")") + 2 :][:1]
            if state:
                yield int(name), stat[stat.find("(") + 1 : stat.rfind(")")], state


def process_names(proc: str = "/proc") -> set[str]:
    """Returns the names of all processes."""
    return {name for _, name, _ in list_processes(proc)}


def runs_as_root(pid: int, proc: str = "/proc") -> bool:
    """Returns whether root started this process; its name does not count. The real uid counts: any user may keep a set-uid
    root program waiting at its password prompt."""
    found = re.search(r"^Uid:\t(\d+)\t", read_text(f"{proc}/{pid}/status"), re.MULTILINE)
    return found is not None and found[1] == "0"


def _paths(text: str) -> dict[str, str]:
    rows = (line.split(":", 2) for line in text.splitlines())
    return {row[1]: row[2] for row in rows if len(row) == 3}


def uid_of_process(pid: int) -> int:
    """Returns the uid of a process; -1 if it has ended."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1
