"""Finds and ends processes that users run on a machine outside of jobs."""

from __future__ import annotations

import contextlib
import os
import re
import time

from ops.files import read_text

JOB_STEP = re.compile(r"/job_\d+/step_(?!extern)")  # in the cgroups of what belongs to a job


def processes(uids: set[int]) -> list[tuple[int, int]]:
    """(pid, uid) of what these users run beside their jobs: those end when Slurm is told so, or may finish. A session
    that came in by SSH beside a job (its extern step) is none of the job's own."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                uid = entry.stat().st_uid
                if uid in uids and not JOB_STEP.search(read_text(f"/proc/{entry.name}/cgroup")):
                    found.append((int(entry.name), uid))
    return found


def has_job(uid: int) -> bool:
    """Whether a job of this user runs here."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == uid and JOB_STEP.search(read_text(f"/proc/{entry.name}/cgroup")):
                    return True
    return False


def end_processes(uid: int) -> None:
    if not has_job(uid):
        at_one_stroke(uid)
    for _ in range(20):
        found = processes({uid})
        if not found:
            return
        for pid, _ in found:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        time.sleep(0.05)


def at_one_stroke(uid: int) -> None:
    """Ends all a user runs: what forks faster than /proc can be read does not escape this."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            os.setresuid(uid, uid, uid)
            os.kill(-1, 9)
        os._exit(0)
    os.waitpid(child, 0)
