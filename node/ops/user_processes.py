"""Finds and ends processes that users run on a machine outside of jobs."""

from __future__ import annotations

import contextlib
import os
import re
import time

from ops.files import read_text

JOB_STEP = re.compile(r"/job_\d+/step_(?!extern)")  # in the cgroup of a job's process


def processes(uids: set[int]) -> list[tuple[int, int]]:
    """Returns (pid, uid) of what these users run outside of jobs. An SSH session that Slurm adopted into a job's extern
    step counts as outside. Processes of job steps are left out: Slurm ends them, or lets them finish."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                uid = entry.stat().st_uid
                if uid in uids and not JOB_STEP.search(read_text(f"/proc/{entry.name}/cgroup")):
                    found.append((int(entry.name), uid))
    return found


def has_job(uid: int) -> bool:
    """Returns whether a job of this user runs here."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == uid and JOB_STEP.search(read_text(f"/proc/{entry.name}/cgroup")):
                    return True
    return False


def end_processes(uid: int) -> None:
    """Ends what this user runs outside of jobs; everything at once if the user has no job here."""
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
    """Kills all processes of a user in one call, as that user, which also ends programs that fork faster than /proc can
    be read."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            os.setresuid(uid, uid, uid)
            os.kill(-1, 9)
        os._exit(0)
    os.waitpid(child, 0)
