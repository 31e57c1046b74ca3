"""Reads the kernel's log and the GPU errors (NVIDIA XID) in it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.jobs.processes import job_of, uid_of_process

SAME_S = 10.0  # an error that the log and NVML tell of within so long is one
MOST_RECORDS = 200  # read in one go, then the rest of the agent has its turn
MOST_IN_A_BEAT = 20
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d{1,4})(?:, ?(.*))?")  # at the line's beginning
# The kernel's own facility, which no program can write under, and that of `headway fault` on a real machine
# (node/inject_fault.py).
_FACILITIES = frozenset({0, 23})


class KernelLog:
    """The kernel's log from its beginning, and as it grows. `path` is /dev/kmsg, or a plain file with lines of its form
    that stands for it where there is no GPU: "PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT"."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.handle = -1
        self.wakes = path.startswith("/dev/")
        self._rest = ""

    def new_records(self) -> list[str]:
        """What is new, each record once; [] where there is no log (yet)."""
        try:
            if self.handle < 0:
                self.handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return self._device() if self.wakes else self._file()
        except OSError:
            return []

    def _device(self) -> list[str]:
        found = []
        while len(found) < MOST_RECORDS:
            try:
                found.append(os.read(self.handle, 8192).decode(errors="replace"))
            except BlockingIOError:
                break
            except BrokenPipeError:  # records went before they were read: the next read is of the oldest there is
                continue
        return found

    def _file(self) -> list[str]:
        data = os.read(self.handle, 1 << 20)
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        if os.fstat(self.handle).st_nlink == 0:  # another file has its place
            os.close(self.handle)
            self.handle, self._rest = -1, ""
        return lines


def kernel_line(record: str) -> str:
    """The line of a record, "" where a program has written it."""
    head, _, text = record.partition(";")
    number = head.partition(",")[0]
    return text.split("\n")[0] if number.isdigit() and int(number) >> 3 in _FACILITIES else ""


def gpus_by_bus() -> dict[str, int]:
    """PCI bus address ("3b:00") -> number of the GPU; {} where there is none."""
    argv = ["nvidia-smi", "--query-gpu=index,pci.bus_id", "--format=csv,noheader"]
    try:
        said = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = (line.split(",") for line in said.splitlines())
    return {bus_of(row[1]): int(row[0]) for row in rows if len(row) == 2 and row[0].strip().isdigit()}


def bus_of(address: str) -> str:
    """00000000:3B:00.0, 0000:3b:00 -> 3b:00 with the domain, however long it is written."""
    parts = address.strip().lower().split(".")[0].split(":")
    domain = parts[0].lstrip("0") if len(parts) > 2 else ""
    return ":".join([domain, *parts[-2:]])


@dataclass
class GpuErrors:
    """GPU errors of this node's log, kept until the head has them."""

    node: str
    boot: str  # the log begins anew with each
    gpus: Callable[[], dict[str, int]] = gpus_by_bus
    job_of_pid: Callable[[int], int | None] = lambda pid: job_of(pid, uid_of_process(pid))
    unsent: dict[str, dict[str, Any]] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)  # GPU -> code of its newest error
    seen: dict[tuple[int, int], tuple[int, float]] = field(
        default_factory=dict
    )  # (GPU, code) -> (how often, when last)
    _known: dict[str, int] = field(default_factory=dict)

    def record_line(self, record: str, now: float, monotonic: float) -> bool:
        """Whether the record is a GPU error."""
        words = record.partition(";")[0].split(",")
        found = _XID.match(kernel_line(record))  # the names of people's programs and files stand further on in lines
        if found is None or len(words) < 3 or not words[1].isdigit() or not words[2].isdigit():
            return False
        bus, code, more = found.groups()
        pid = re.search(r"\bpid='?(\d{1,9})", more or "")
        name = f"{self.node}-{self.boot}-{words[1]}-{words[2]}"
        gpu = self._gpu(bus_of(bus))
        at = round(now - max(0.0, monotonic - int(words[2]) / 1e6), 3)
        if gpu is not None:
            self.last[gpu] = int(code)
            self.seen[gpu, int(code)] = (self.seen.get((gpu, int(code)), (0, 0.0))[0] + 1, at)
        self.unsent[name] = {
            "id": name,
            "at": at,
            "code": int(code),
            "gpu": gpu,
            "job": self.job_of_pid(int(pid[1])) if pid else None,
            "text": (more or "")[:500],
        }
        return True

    def record_driver_event(self, bus: str, code: int, now: float) -> bool:
        """An error that the driver's library told of. Whether it is news: the log says most of them too, and better, so
        its line is waited for."""
        gpu = self._gpu(bus_of(bus))
        if any(
            abs(now - at) < SAME_S for (index, known), (_, at) in self.seen.items() if (index, known) == (gpu, code)
        ):
            return False
        name = f"{self.node}-{self.boot}-nvml-{bus_of(bus)}-{code}-{now:.0f}"
        self.unsent[name] = {
            "id": name, "at": round(now, 3), "code": code, "gpu": gpu, "job": None, "text": "told by NVML",
        }  # fmt: skip
        if gpu is not None:
            self.last[gpu] = code
            self.seen[gpu, code] = (self.seen.get((gpu, code), (0, 0.0))[0] + 1, now)
        return True

    def record_ended_job(self, kind: str, job: int, why: str, now: float) -> None:
        """The job's processes here were ended ("lease": lease.py, "orphan": orphans.py): it has to be run again."""
        name = f"{self.node}-{self.boot}-{kind}-{job}-{now:.0f}"
        fault = {"id": name, "at": round(now, 3), "kind": kind, "action": "restart_job", "code": 0, "gpu": None}
        self.unsent[name] = {**fault, "job": job, "text": f"its processes here were ended: {why}"}

    def refresh_gpu_list(self) -> None:
        """While all is well: a GPU that has fallen off the bus is not listed any more."""
        self._known = self.gpus()

    def _gpu(self, bus: str) -> int | None:
        if bus not in self._known:
            self._known = {**self.gpus(), **self._known}
        return self._known.get(bus)

    def pending_message(self) -> dict[str, Any]:
        """The next message to the head."""
        return {"node": self.node, "faults": list(self.unsent.values())[:MOST_IN_A_BEAT]}

    def acknowledge(self, names: Any) -> None:
        for name in names if isinstance(names, list) else ():
            self.unsent.pop(str(name), None)


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read()[:8]
