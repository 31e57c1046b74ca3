"""Finds jobs that hold real GPUs and run a PyTorch that can't use them, and says so in their log: such a job trains on the CPU
without a word. Either PyTorch is built without CUDA, or for a newer CUDA than the driver supports."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from agent.gpu.job_gpus import GpuJob
from agent.log import log
from agent.metrics.host import read_text
from agent.processes import job_of, list_processes, uid_of_process

WITHOUT_CUDA, CUDA_TOO_NEW = "torch_without_cuda", "torch_cuda_too_new"  # in the job's reports
_CPU, _GPU = "libtorch_cpu.so", ("libtorch_cuda", "libtorch_hip", "libtorch_xpu")
_RUNTIME = re.compile(r"/libcudart[^/\s]*\.so\.(\d+)")  # CUDA's runtime, of the major version that PyTorch is built for
_DRIVER = re.compile(r"/libcuda\.so\.([\d.]+)")
_COMPAT = "usr/local/cuda*/compat/libcuda.so.*"  # where CUDA's images have libraries of a newer driver
_PYTHON = ("python", "pt_main_thread", "torchrun", "pt_elastic")
_NO_CUDA = (
    "headway: job {job} holds GPUs, but this PyTorch is built without CUDA: it computes on the CPU. "
    "Use an environment with CUDA (headway run --environment pytorch, module load pytorch), a container, or your own venv."
)
_TOO_NEW = (
    "headway: job {job} holds GPUs, but this PyTorch is built for CUDA {cuda}, and driver {driver} of this node supports "
    "CUDA {supported}: it finds no GPU. Use a PyTorch that is built for CUDA {supported} (from the package index torch<2.11 is "
    "for CUDA 12), or ask an admin for a newer driver."
)
# Run with the rights of the process itself, so that it opens nothing that they could not open.
_APPEND = 'printf "%s\\n" "$2" >>"/proc/$1/fd/2"'
_WRITE_S = 5
LOOK_S = 2.0


class InstalledDriver(NamedTuple):
    """The driver of this machine. `cuda`: the newest major version of CUDA that it supports, 0 if that is not known."""

    version: str = ""
    cuda: int = 0


class Finding(NamedTuple):
    """A job whose PyTorch can't use its GPUs. `cuda`: the major version of CUDA that it is built for, 0 without CUDA."""

    job: int
    pid: int
    cuda: int = 0

    @property
    def flag(self) -> str:
        """Returns what the job's reports say."""
        return CUDA_TOO_NEW if self.cuda else WITHOUT_CUDA

    def warning(self, driver: InstalledDriver) -> str:
        """Returns the sentence for the job's log."""
        text = _TOO_NEW if self.cuda else _NO_CUDA
        return text.format(job=self.job, cuda=self.cuda, driver=driver.version, supported=driver.cuda)


class TorchWatch(threading.Thread):
    """Looks at the processes of GPU jobs in a thread of its own, because both may block for ever: reading the libraries of a
    process that hangs, and writing to its log. Appends (job, flag) of each job whose PyTorch can't use its GPUs to `found`,
    and warns in its log. `jobs`: returns the jobs of this machine; `driver`: returns its driver."""

    def __init__(
        self,
        jobs: Callable[[], Iterable[GpuJob]],
        found: deque[tuple[int, str]],
        driver: Callable[[], InstalledDriver],
        proc: str = "/proc",
    ) -> None:
        super().__init__(daemon=True)
        self._jobs, self._found, self._driver, self._proc = jobs, found, driver, proc
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
        driver = self._driver()
        for finding in self._builds.find_new(self._jobs(), names, driver):
            self._found.append((finding.job, finding.flag))
            warn_in_log(finding, driver)


class TorchBuilds:
    """Looks at the libraries that Python processes of GPU jobs have loaded. A job is decided once: when one of its
    processes has a build that can use the GPUs, or when one was seen at two looks that can't."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._decided: set[int] = set()
        self._suspect: set[int] = set()  # pids that could not use the GPUs at the last look

    def find_new(
        self, jobs: Iterable[GpuJob], processes: Iterable[tuple[int, str]], driver: InstalledDriver
    ) -> list[Finding]:
        """Returns the jobs found since the last call to run a PyTorch that can't use their GPUs. `processes`: (pid, name) of
        all processes."""
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
            cpu, gpu, cuda = self._libraries(pid, driver)
            if gpu and not cuda:
                self._decided.add(job)
            elif (cpu or gpu) and pid in self._suspect:
                self._decided.add(job)
                found.append(Finding(job, pid, cuda))
            elif cpu or gpu:
                suspect.add(pid)
        self._suspect = suspect
        return found

    def _uid(self, pid: int) -> int:
        return uid_of_process(pid) if self._proc == "/proc" else os.stat(f"{self._proc}/{pid}").st_uid

    def _libraries(self, pid: int, driver: InstalledDriver) -> tuple[bool, bool, int]:
        """Returns whether the process has loaded PyTorch, whether one for GPUs, and the major version of its CUDA if the
        driver does not support that, otherwise 0."""
        try:
            with open(f"{self._proc}/{pid}/maps", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:  # it has ended
            return False, False, 0
        runtime, loaded = _RUNTIME.search(text), _DRIVER.search(text)
        cuda = int(runtime[1]) if runtime and driver.cuda else 0
        # The name of a driver that was copied from a container's host has no version.
        newer = bool(loaded and loaded[1] not in ("1", driver.version)) or bool(
            glob.glob(f"{self._proc}/{pid}/root/{_COMPAT}")
        )
        too_new = cuda if cuda > driver.cuda and not newer else 0
        return _CPU in text, any(name in text for name in _GPU), too_new


def warn_in_log(finding: Finding, driver: InstalledDriver) -> None:
    """Appends the warning to what the process writes to standard error."""
    pid = finding.pid
    uid = uid_of_process(pid)
    if uid <= 0:
        return
    words = ["sh", "-c", _APPEND, "sh", str(pid), finding.warning(driver)]
    try:
        group, others = os.stat(f"/proc/{pid}").st_gid, _extra_groups(pid)
        subprocess.run(
            words, user=uid, group=group, extra_groups=others, timeout=_WRITE_S, check=True, capture_output=True
        )
    except (OSError, subprocess.SubprocessError) as error:  # the process has ended, or its log is full
        log(f"job {finding.job}: that its PyTorch can't use its GPUs could not be told in its log: {error}")


def _extra_groups(pid: int) -> list[int]:
    found = re.search(r"^Groups:(.*)$", read_text(f"/proc/{pid}/status"), re.MULTILINE)
    return [int(group) for group in found[1].split()] if found else []
