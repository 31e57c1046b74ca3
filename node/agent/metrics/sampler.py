"""Samples the machine in threads next to the agent's main loop, which never blocks: reads GPUs and metrics, runs
checks, and keeps the text for Prometheus ready."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from agent.checks import (  # noqa: F401  (checks register themselves)
    disk_checks,
    gpu_checks,
    host_settings,
    kernel_log_errors,
    system_checks,
    volume_checks,
)
from agent.checks.runner import LEVELS, MachineReading, Process, Runner
from agent.checks.xid_errors import bus_of
from agent.config import Config
from agent.gpu.gpu_source import Gpu, GpuSource
from agent.gpu.job_gpus import jobs_on_node
from agent.jobs.job_cgroups import job_metrics
from agent.jobs.orphaned_jobs import OrphanedJobs
from agent.jobs.torch_builds import InstalledDriver, TorchWatch
from agent.log import log
from agent.lost_contact.node_lease import end_jobs
from agent.metrics import host, http_endpoint
from agent.metrics.active_clock import ActiveClock
from agent.metrics.host import Figure
from agent.metrics.rapl import Rapl
from agent.processes import list_processes, runs_as_root

READ_S = 5.0
LOOK_S = 1.0
FIRST_LOOK_S = 0.1  # interval until everything was checked once; jobs wait for that
FIRST_S = 12.0  # after so long, checks run without what has not answered: a prolog waits 20 s (prolog_epilog.py)
PROCESSES_S = 15.0
DISKS_S = 30.0
TEXT_S = 5.0
_MOST_LINES = 20


class GpuReader(threading.Thread):
    """Reads the GPUs in a thread of its own, because a faulty driver may block for ever."""

    def __init__(self, source: GpuSource, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(daemon=True)
        self._source = source
        self._clock = clock
        self.first = threading.Event()  # set after the first answer or error
        self.gpus: list[Gpu] = []
        self.at: float | None = None
        self.error = ""

    def run(self) -> None:
        while True:
            self.read_once()
            time.sleep(READ_S)

    def read_once(self) -> None:
        """Reads the GPUs; an error is kept in `error`."""
        try:
            self.gpus, self.at, self.error = self._source.read(), self._clock(), ""
        except OSError as error:
            self.error = str(error)
        except Exception as error:  # the thread must go on, because nothing else reads the GPUs
            self.error = f"{type(error).__name__}: {error}"
        self.first.set()


class DiskReader(threading.Thread):
    """Reads the file systems' free space in a thread of its own, because a network file system may block for ever."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.figures: list[Figure] = []

    def run(self) -> None:
        while True:
            try:
                self.figures = list(host.file_systems())
            except Exception as error:  # the thread must go on, because nothing else reads the disks
                log(f"the file systems can't be read: {type(error).__name__}: {error}")
            time.sleep(DISKS_S)


def _errors(errors: dict[tuple[int, int], tuple[int, float]]) -> Iterator[Figure]:
    rows = [({"gpu": str(gpu), "code": str(code)}, *values) for (gpu, code), values in sorted(errors.copy().items())]
    yield from (("headway_xid_errors_total", labels, often) for labels, often, _ in rows)
    yield from (("headway_xid_last_timestamp_seconds", labels, last) for labels, _, last in rows)


class Sampler(threading.Thread):
    """Reads the machine, runs the checks and prepares the metrics text, each second."""

    def __init__(
        self, config: Config, source: GpuSource | None, runner: Runner | None = None, proc: str = "/proc"
    ) -> None:
        super().__init__(daemon=True)
        self._source = source
        self.awake = ActiveClock()
        self.reader = GpuReader(source, self.awake) if source else None
        self._disks = DiskReader()
        self._runner = runner or Runner()
        self._proc = proc
        self._orphans = OrphanedJobs(proc)
        self._rapl = Rapl() if config.own_hardware else None
        self._host = os.uname().nodename
        self._states: dict[int, tuple[str, str, float]] = {}  # pid -> (name, state, since)
        self._due = self._text_due = 0.0
        self._whole = False  # whether the GPUs were read, or FIRST_S has passed
        self.seen = MachineReading(config, started=self.awake(), proc=proc)
        self.changed: deque[dict[str, Any]] = deque(maxlen=500)  # check results for the main loop to send
        # Jobs whose PyTorch can't use their GPUs, with what is wrong, for the main loop to put into their reports.
        self.cpu_torch: deque[tuple[int, str]] = deque()
        real_gpus = bool(config.gpus) and not config.simulated
        self._torch = TorchWatch(lambda: self.seen.jobs, self.cpu_torch, self._driver, proc) if real_gpus else None
        self.lost: deque[int] = deque()  # jobs that lost their slurmstepd, for the main loop to report to the head
        self.kernel: deque[str] = deque(maxlen=_MOST_LINES)  # lines from the main loop, which follows the kernel's log
        self.xids: dict[int, int] = {}
        self.errors: dict[tuple[int, int], tuple[int, float]] = {}
        self.sealed_at: float | None = None
        self.skew_s: float | None = None
        self.text = b""

    def _driver(self) -> InstalledDriver:
        return InstalledDriver(self._source.driver, self._source.cuda) if self._source else InstalledDriver()

    def gpus_by_bus(self) -> dict[str, int]:
        """Returns PCI bus address (":3b:00") -> number of each GPU that has been read."""
        return {bus_of(gpu.bus): gpu.index for gpu in self.reader.gpus if gpu.bus} if self.reader else {}

    @property
    def gpus_were_read(self) -> bool:
        """Whether the GPUs have been read, or FIRST_S is over without."""
        over = self.awake() - self.seen.started > FIRST_S
        return self.reader is None or self.reader.first.is_set() or over

    def run(self) -> None:
        for thread in (self.reader, self._disks, self._torch):
            if thread is not None:
                thread.start()
        while True:
            try:
                self.sample(self.awake.tick())
            except Exception as error:  # the thread must go on, because nothing else samples this machine
                log(f"the machine can't be measured: {type(error).__name__}: {error}")
            hurries = not self._runner.looked and self.awake() - self.seen.started < FIRST_S
            time.sleep(FIRST_LOOK_S if hurries else LOOK_S)

    def sample(self, now: float) -> None:
        """Does one round at `now`, in ActiveClock's seconds."""
        if not self._whole and (self.reader is None or self.reader.first.is_set() or now - self.seen.started > FIRST_S):
            self._whole = True
            self._runner.make_prolog_checks_due()
        seen = self._see(now)
        changed = self._runner.run_due(seen, time.time(), whole=self._whole)
        self.changed.extend(changed)
        if changed or now >= self._text_due:
            self._text_due = now + TEXT_S
            self._write(seen)

    def _write(self, seen: MachineReading) -> None:
        source = self._source
        energy = self._rapl.energy_j() if self._rapl else ()
        self.text = http_endpoint.metrics_text(
            self._host,
            source.driver if source else "",
            bool(source and source.simulated),
            seen.gpus,
            seen.jobs,
            self.xids,
            [
                *_errors(self.errors),
                *host.process_metrics(),
                *host.host_metrics(self._proc),
                *job_metrics(job.number for job in seen.jobs),
                *energy,
                *self._disks.figures,
            ],
            {name: LEVELS[state.result.state] for name, state in self._runner.states.items()},
        )

    def _see(self, now: float) -> MachineReading:
        old, reader = self.seen, self.reader
        self.seen = MachineReading(
            config=old.config,
            now=now,
            gpus=reader.gpus if reader else [],
            gpus_at=reader.at if reader else None,
            gpu_error=reader.error if reader else "",
            jobs=jobs_on_node(),
            processes=self._processes(now) if now >= self._due else old.processes,
            kernel=list(self.kernel),
            sealed_at=self.sealed_at,
            skew_s=self.skew_s,
            started=old.started,
            kept=old.kept,
            proc=self._proc,
        )
        return self.seen

    def _processes(self, now: float) -> list[Process]:
        self._due = now + PROCESSES_S
        found = {}
        for pid, comm, state in list_processes(self._proc):
            old = self._states.get(pid)
            found[pid] = (comm, state, old[2] if old and old[:2] == (comm, state) else now)
        self._states = found
        daemons = (pid for pid, (name, _, _) in found.items() if name == "slurmstepd")
        for job in self._orphans.find_new(pid for pid in daemons if runs_as_root(pid, self._proc)):
            if self.seen.config.offline_response:
                end_jobs(self._proc, only=job)
            self.lost.append(job)
        return [Process(pid, *rest) for pid, rest in found.items()]
