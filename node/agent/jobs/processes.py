"""Lists processes, and tells which Slurm job a process belongs to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from agent.metrics.host import read_text

# v1: .../slurm/uid_1000/job_12/step_0/...   v2: .../system.slice/[NODE_]slurmstepd.scope/job_12/step_0/...
_CGROUP = re.compile(r"(?:/slurm(?:_[^/]+)?/uid_\d+|/system\.slice/(?:[^/]+_)?slurmstepd\.scope)/job_(\d+)(?:/|$)")


def job_of(pid: int, uid: int, proc: str = "/proc") -> int | None:
    """The Slurm job that this process of `uid` belongs to; None when it belongs to none, or is gone."""
    try:
        if os.stat(f"{proc}/{pid}").st_uid != uid:  # another process has its number meanwhile
            return None
        with open(
            f"{proc}/{pid}/cgroup", encoding="utf-8", errors="replace"
        ) as file:  # people name folders as they like
            mine = _paths(file.read())
        with open(f"{proc}/1/cgroup", encoding="utf-8", errors="replace") as file:
            roots = _paths(file.read())
    except OSError:
        return None
    for controller, path in mine.items():
        # A person may have a part of the tree of their own and name folders in it as they like: only what stands at
        # the top of the machine's tree was made by root.
        root = roots.get(controller, "/").removesuffix("/init.scope").removesuffix("/")
        found = _CGROUP.match(path.removeprefix(root))
        if found:
            return int(found[1])
    return None


def list_processes(proc: str = "/proc") -> Iterator[tuple[int, str, str]]:
    """(pid, name, state) of all there are."""
    for name in os.listdir(proc):
        if name.isdigit():
            told = read_text(f"{proc}/{name}/stat")
            state = told[told.rfind(")") + 2 :][:1]
            if state:
                yield int(name), told[told.find("(") + 1 : told.rfind(")")], state


def process_names(proc: str = "/proc") -> set[str]:
    return {name for _, name, _ in list_processes(proc)}


def runs_as_root(pid: int, proc: str = "/proc") -> bool:
    """Whether root started this process: whatever it is called, none of a person's. By its real uid, for anybody may wait at the
    password of a program that is set-uid root."""
    found = re.search(r"^Uid:\t(\d+)\t", read_text(f"{proc}/{pid}/status"), re.MULTILINE)
    return found is not None and found[1] == "0"


def _paths(text: str) -> dict[str, str]:
    rows = (line.split(":", 2) for line in text.splitlines())
    return {row[1]: row[2] for row in rows if len(row) == 3}


def uid_of_process(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1
