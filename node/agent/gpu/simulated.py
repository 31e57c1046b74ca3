"""Simulates GPUs on local clusters. Utilization and memory follow what the jobs that hold a GPU really do. Injected faults are
files in FAULTS: gpu3-ecc, gpu3-throttle, gpu3-lost ..."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time

from agent.config import Config
from agent.gpu import gpu_metrics
from agent.gpu.gpu_source import Gpu
from agent.gpu.job_gpus import JOBS, GpuJob, jobs_on_node
from agent.gpu.simulated_mig import SimulatedMig
from agent.jobs.job_cgroups import CGROUPS, JobCgroups

FAULTS = "/run/headway/faults"
DEVICES = "/dev"
IDLE_W, IDLE_C, IDLE_MHZ = 70.0, 30.0, 345
BUSY_C, BUSY_MHZ, MEM_MHZ = 68.0, 1755, 2619
CONTEXT_MIB = 512  # memory of a CUDA context, before the process allocates anything
THERMAL = 0x40
_POWER_W = {"h100": 700.0, "h200": 700.0, "b200": 1000.0, "a100": 400.0, "l40s": 350.0}


class Simulated:
    """A `GpuSource` that simulates the GPUs of `config`."""

    simulated = True
    driver = "simulated"
    cuda = 0

    def __init__(
        self,
        config: Config,
        *,
        faults: str = FAULTS,
        devices: str = DEVICES,
        cgroups: str = CGROUPS,
        jobs: str = JOBS,
        host: str = "",
    ) -> None:
        self._config, self._faults, self._devices, self._jobs = config, faults, devices, jobs
        self._cgroups = JobCgroups(cgroups)
        self._host = host or os.uname().nodename
        self._energy = [0.0] * config.gpus
        self._mig = SimulatedMig(config.gpus, devices=devices) if config.mig else None
        self._used: dict[int, tuple[float, float]] = {}  # job -> (when read, CPU seconds so far)
        self._busy: dict[int, float] = {}  # job -> number of CPUs it keeps busy
        self._at = 0.0

    def read(self, now: float | None = None) -> list[Gpu]:
        """Returns all GPUs at `now` (monotonic seconds)."""
        now = time.monotonic() if now is None else now
        passed = now - self._at if self._at else 0.0
        self._at = now
        here = jobs_on_node(self._jobs)
        for job in here:
            self._update_busy_cpus(job, now)
        self._used = {job.number: self._used[job.number] for job in here if job.number in self._used}
        owner = {index: job for job in here for index in job.gpus}
        faults = self._injected()
        return [self._one(index, owner.get(index), faults.get(index, {}), passed) for index in self._indices()]

    def _indices(self) -> range:
        return range(self._config.gpus)

    def _one(self, index: int, job: GpuJob | None, fault: dict[str, str], passed: float) -> Gpu:
        found = Gpu(index, self._uuid(index), f"{self._config.product} (simulated)", pci_bus_id(index))
        if "lost" in fault or not os.path.exists(f"{self._devices}/nvidia{index}"):
            found.lost = True
            return found
        found.mig = self._mig.instances(index) if self._mig else None
        busy = min(1.0, self._busy.get(job.number, 0.0)) if job else 0.0
        util = _number(fault.get("util"), round(100 * busy))
        most = _POWER_W.get(self._config.gpu_type, 400.0)
        hot = "throttle" in fault
        power = IDLE_W + util / 100 * (most * 0.9 - IDLE_W)
        self._energy[index] += power * passed * 1000
        used = min(self._config.gpu_memory_mib, CONTEXT_MIB + self._memory_mib(job) // len(job.gpus)) if job else 0
        found.figures = {
            gpu_metrics.UTIL: util,
            gpu_metrics.MEM_UTIL: _number(fault.get("mem_util"), round(util * 0.4)),
            gpu_metrics.FB_USED: used,
            gpu_metrics.FB_FREE: self._config.gpu_memory_mib - used,
            gpu_metrics.POWER: round(power, 1),
            gpu_metrics.ENERGY: round(self._energy[index]),
            gpu_metrics.TEMP: _number(fault.get("temp"), 95 if hot else round(IDLE_C + util / 100 * (BUSY_C - IDLE_C))),
            gpu_metrics.MEM_TEMP: round(IDLE_C + 5 + util / 100 * 40),
            gpu_metrics.SM_CLOCK: 900 if hot else (BUSY_MHZ if util else IDLE_MHZ),
            gpu_metrics.MEM_CLOCK: MEM_MHZ,
            gpu_metrics.SBE: _number(fault.get("ecc-corrected")),
            gpu_metrics.DBE: _number(fault.get("ecc")),
            gpu_metrics.ROWS_BAD: _number(fault.get("rows")),
            gpu_metrics.ROWS_WEAK: 0,
            gpu_metrics.ROWS_PENDING: float("rows-pending" in fault),
            gpu_metrics.ROWS_FAILED: float("rows-failed" in fault),
            gpu_metrics.THROTTLE: THERMAL if hot else 0 if util else 1,
            gpu_metrics.PCIE_WIDTH: _number(fault.get("pcie"), 16),
            gpu_metrics.PCIE_MAX_WIDTH: 16,
            gpu_metrics.PCIE_REPLAYS: 0,
        }
        links = int(self._config.expects.get("nvlinks", 0))
        if links:
            found.figures[gpu_metrics.NVLINKS] = links - _number(fault.get("nvlinks-down"))
        return found

    def _uuid(self, index: int) -> str:
        """Returns the GPU's UUID, the same that the simulated nvidia-smi prints."""
        text = hashlib.sha256(f"headway {self._host} {index}".encode()).hexdigest()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"

    def _injected(self) -> dict[int, dict[str, str]]:
        """Returns the injected faults: {3: {"ecc": "1"}} for a file gpu3-ecc that contains 1."""
        found: dict[int, dict[str, str]] = {}
        with contextlib.suppress(OSError):
            for name in os.listdir(self._faults):
                device, _, kind = name.partition("-")
                if device.startswith("gpu") and device[3:].isdigit():
                    found.setdefault(int(device[3:]), {})[kind] = _text(f"{self._faults}/{name}").strip()
        return found

    # A job's CPU time and memory come from its cgroup, which counts all its processes.

    def _update_busy_cpus(self, job: GpuJob, now: float) -> None:
        """Updates how many CPUs a job keeps busy. A job that keeps one CPU busy shows its GPUs as fully used."""
        used = self._cgroups.cpu_s(job.number) or 0.0
        at, before = self._used.get(job.number, (now, used))
        if now > at:
            self._busy[job.number] = max(0.0, used - before) / (now - at)
        self._used[job.number] = (now, used)

    def _memory_mib(self, job: GpuJob) -> int:
        return (self._cgroups.memory_bytes(job.number) or 0) >> 20


def pci_bus_id(index: int) -> str:
    """Returns the GPU's PCI address, the same that the simulated nvidia-smi prints."""
    return f"00000000:{0x19 + 0x11 * index & 0xFF:02X}:00.0"


def _number(text: str | None, otherwise: float = 0) -> float:
    try:
        return otherwise if text is None else float(text)
    except ValueError:
        return otherwise


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
