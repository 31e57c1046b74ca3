"""Samples memory and open files of the server and of every daemon on a local cluster's machines, and finds those that
grow.

Machines are containers on this host, so their processes are read from this host's /proc; a process belongs to the machine
whose process namespace it is in. Processes of jobs are short; only processes that live through both windows of a
comparison are compared."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

MOST_GROWTH = 0.05
# Below these a share says nothing: one more page of a small daemon's heap, or one more connection, is over 5 %.
LEAST_MIB = 1.0
LEAST_FILES = 4
# Prometheus keeps the time series of the last two to three hours in memory, and each job has some of its own. That is bounded by
# the rate of jobs, and not a leak: 4.1 and 7.7 KiB each were measured, in two runs of 20 minutes.
SERIES_KIB = 8.0
PAGE = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True)
class Process:
    """One process. `started`: clock ticks since the host's boot, so that a reused pid is another process."""

    machine: str
    name: str
    pid: int
    started: int


@dataclass(frozen=True)
class Sample:
    """Unix seconds, private memory in MiB, and the number of open files."""

    at: float
    mib: float
    files: int


@dataclass(frozen=True)
class Growth:
    """A process's medians in the first and in the last window. `new_series`: of Prometheus, by how many its time series
    have become more."""

    process: Process
    mib: tuple[float, float]
    files: tuple[float, float]
    new_series: float = 0.0

    @property
    def memory_grows(self) -> bool:
        """Returns whether memory grew by more than 5 % and more than 1 MiB, and by more than new time series need."""
        before, after = self.mib
        return after - before - self.new_series * SERIES_KIB / 1024 > max(LEAST_MIB, MOST_GROWTH * before)

    @property
    def files_grow(self) -> bool:
        """Returns whether open files grew by more than 5 % and more than four."""
        before, after = self.files
        return after - before > max(LEAST_FILES, MOST_GROWTH * before)

    def __str__(self) -> str:
        series = f", {self.new_series:+.0f} time series" if self.new_series else ""
        return (
            f"{self.process.machine:<12} {self.process.name:<22} {self.mib[0]:7.1f} -> {self.mib[1]:7.1f} MiB"
            f" ({self.mib[1] / max(self.mib[0], 0.1) - 1:+.1%}), {self.files[0]:.0f} -> {self.files[1]:.0f} files{series}"
        )


@dataclass
class DaemonSamples:
    """All samples by process. `label`: of the machines' containers; `server`: the pid of the server; `series`: when Prometheus
    was asked for the number of its time series, and its answer."""

    label: str
    server: int
    samples: dict[Process, list[Sample]] = field(default_factory=dict)
    series: list[tuple[float, float]] = field(default_factory=list)

    def take(self, at: float, head: str) -> None:
        """Adds one sample of each process of the server and of the cluster's machines. `head`: the head's container."""
        number = time_series(head)
        if number is not None:
            self.series.append((at, number))
        machines = machine_namespaces(self.label)
        stats = dict(_stats())
        below_server = _descendants(self.server, {pid: parent for pid, (_, parent, _) in stats.items()})
        for pid, (_, _, started) in stats.items():
            machine = "server" if pid in below_server else machines.get(_namespace(pid), "")
            if not machine:
                continue
            sample = _sample(pid, at)
            if sample is not None:
                self.samples.setdefault(Process(machine, _name(pid), pid, started), []).append(sample)

    def growths(self, warm_up_s: float, window_s: float, least_s: float) -> list[Growth]:
        """Returns the growth of every process that was seen for `least_s` after its first `warm_up_s`. The first window
        is the `window_s` after the warm-up, the last one the `window_s` before the process's last sample."""
        found = []
        for process, samples in self.samples.items():
            begin, end = samples[0].at + warm_up_s, samples[-1].at
            if end - begin < least_s:
                continue
            first = [one for one in samples if begin <= one.at <= begin + window_s]
            last = [one for one in samples if one.at >= end - window_s]
            if first and last:
                new = self._new_series(first, last) if process.name == "prometheus" else 0.0
                found.append(
                    Growth(
                        process, _medians(first, last, lambda s: s.mib), _medians(first, last, lambda s: s.files), new
                    )
                )
        return sorted(found, key=lambda one: one.mib[0] - one.mib[1])

    def _new_series(self, first: list[Sample], last: list[Sample]) -> float:
        """Returns by how many the median of the time series became larger from the first window to the last."""
        windows = [
            [number for at, number in self.series if window[0].at <= at <= window[-1].at] for window in (first, last)
        ]
        return statistics.median(windows[1]) - statistics.median(windows[0]) if all(windows) else 0.0


def _medians(first: list[Sample], last: list[Sample], of: Callable[[Sample], float]) -> tuple[float, float]:
    return statistics.median(map(of, first)), statistics.median(map(of, last))


def time_series(head: str) -> float | None:
    """Returns how many time series the Prometheus of a head has in memory; None if it does not answer."""
    argv = ["podman", "exec", head, "curl", "-s", "http://127.0.0.1:9090/metrics"]
    try:
        told = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
    except subprocess.TimeoutExpired:
        return None
    found = re.search(r"^prometheus_tsdb_head_series (\S+)$", told, re.MULTILINE)
    return float(found[1]) if found else None


def machine_namespaces(label: str) -> dict[str, str]:
    """Returns process namespace -> machine, of the running containers with this podman label."""
    form = '{{.Pid}} {{index .Labels "headway.machine"}}'
    listed = subprocess.run(
        ["podman", "ps", "--filter", f"label={label}", "--format", form],
        capture_output=True, text=True, timeout=60, check=False,
    ).stdout  # fmt: skip
    rows = (line.split() for line in listed.splitlines())
    found = {_namespace(int(pid)): machine for pid, machine in rows}
    return {namespace: machine for namespace, machine in found.items() if namespace}


def _stats() -> Iterable[tuple[int, tuple[str, int, int]]]:
    """Yields (pid, (command, parent, start in clock ticks)) of all processes."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            command, _, rest = text.partition("(")[2].rpartition(")")
            fields = rest.split()
            yield int(entry.name), (command, int(fields[1]), int(fields[19]))


def _descendants(root: int, parents: dict[int, int]) -> set[int]:
    found, size = {root}, 0
    while len(found) != size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _name(pid: int) -> str:
    """Returns what the process runs: of Python the module or script."""
    try:
        words = [w for w in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0") if w]
    except OSError:
        words = []
    if not words:
        return "?"
    program = Path(words[0].split()[0]).name.rstrip(":")
    if program.startswith("python"):
        script = next((word for word in words[1:] if not word.startswith("-")), "")
        return Path(script).name[:22] or program
    return program[:22]


def _sample(pid: int, at: float) -> Sample | None:
    """Returns memory that is not shared with files, and the number of open files; None if the process has ended."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None
    return Sample(at, (resident - shared) * PAGE / 2**20, files)
