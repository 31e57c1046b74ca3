"""Finds jobs that hold real GPUs and run a PyTorch built without CUDA, and says so in their log: such a job trains on the CPU
without a word."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from agent.gpu.job_gpus import Job
from agent.jobs.processes import job_of, list_processes, uid_of_process
from agent.log import log
from agent.metrics.host import read_text

FLAG = "torch_without_cuda"  # in the job's reports
_CPU, _GPU = "libtorch_cpu.so", ("libtorch_cuda", "libtorch_hip", "libtorch_xpu")
_PYTHON = ("python", "pt_main_thread", "torchrun", "pt_elastic")
_WARNING = (
    "headway: job {job} holds GPUs, but this PyTorch is built without CUDA: it computes on the CPU. "
    "Use an environment with CUDA (headway run --environment pytorch, module load pytorch), a container, or your own venv."
)
# Run with the rights of the process itself, so that it opens nothing that they could not open.
_APPEND = 'printf "%s\\n" "$2" >>"/proc/$1/fd/2"'
_WRITE_S = 5
LOOK_S = 2.0


class TorchWatch(threading.Thread):
    """Looks at the processes of GPU jobs in a thread of its own, because both may block for ever: reading the libraries of a
    process that hangs, and writing to its log. Appends each job with a PyTorch without CUDA to `found`, and warns in its
    log. `jobs`: returns the jobs of this machine."""

    def __init__(self, jobs: Callable[[], Iterable[Job]], found: deque[int], proc: str = "/proc") -> None:
        super().__init__(daemon=True)
        self._jobs, self._found, self._proc = jobs, found, proc
        self._builds = TorchBuilds(proc)

    def run(self) -> None:
        while True:
            try:
                self.look_once()
            except Exception as error:  # the thread must go on, because nothing else looks at these jobs
                log(f"the PyTorch of jobs can't be looked at: {type(error).__name__}: {error}")
            time.sleep(LOOK_S)

    def look_once(self) -> None:
        """Looks at all processes once."""
        names = ((pid, name) for pid, name, _ in list_processes(self._proc))
        for job, pid in self._builds.find_new(self._jobs(), names):
            self._found.append(job)
            warn_in_log(job, pid)


class TorchBuilds:
    """Looks at the libraries that Python processes of GPU jobs have loaded. A job is decided once: when one of its
    processes has a build with CUDA, or when one was seen without it at two looks."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._decided: set[int] = set()
        self._suspect: set[int] = set()  # pids that had only the CPU library at the last look

    def find_new(self, jobs: Iterable[Job], processes: Iterable[tuple[int, str]]) -> list[tuple[int, int]]:
        """Returns (job, pid) of each job found to run PyTorch without CUDA since the last call. `processes`: (pid, name)
        of all processes."""
        held = {job.number for job in jobs if job.gpus}
        self._decided &= held
        open_jobs, suspect, found = held - self._decided, set(), []
        if not open_jobs:
            return []
        for pid, name in processes:
            if not name.startswith(_PYTHON):
                continue
            job = job_of(pid, self._uid(pid), self._proc)
            if job not in open_jobs or job in self._decided:
                continue
            cpu, gpu = self._libraries(pid)
            if gpu:
                self._decided.add(job)
            elif cpu and pid in self._suspect:
                self._decided.add(job)
                found.append((job, pid))
            elif cpu:
                suspect.add(pid)
        self._suspect = suspect
        return found

    def _uid(self, pid: int) -> int:
        return uid_of_process(pid) if self._proc == "/proc" else os.stat(f"{self._proc}/{pid}").st_uid

    def _libraries(self, pid: int) -> tuple[bool, bool]:
        """Returns whether the process has loaded PyTorch, and whether one for GPUs."""
        try:
            with open(f"{self._proc}/{pid}/maps", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:  # it has ended
            return False, False
        return _CPU in text, any(name in text for name in _GPU)


def warn_in_log(job: int, pid: int) -> None:
    """Appends the warning to what the process writes to standard error."""
    uid = uid_of_process(pid)
    if uid <= 0:
        return
    words = ["sh", "-c", _APPEND, "sh", str(pid), _WARNING.format(job=job)]
    try:
        group, others = os.stat(f"/proc/{pid}").st_gid, _extra_groups(pid)
        subprocess.run(
            words, user=uid, group=group, extra_groups=others, timeout=_WRITE_S, check=True, capture_output=True
        )
    except (OSError, subprocess.SubprocessError) as error:  # the process has ended, or its log is full
        log(f"job {job}: PyTorch without CUDA could not be told in its log: {error}")


def _extra_groups(pid: int) -> list[int]:
    found = re.search(r"^Groups:(.*)$", read_text(f"/proc/{pid}/status"), re.MULTILINE)
    return [int(group) for group in found[1].split()] if found else []
