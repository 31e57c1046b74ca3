"""Reads the kernel's log and the GPU errors (NVIDIA XID) in it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.jobs.processes import job_of, uid_of_process

SAME_S = 10.0  # the same error from the log and from NVML within so long counts once
MOST_RECORDS = 200  # records read in one go, so that the agent's main loop goes on
MOST_IN_A_BEAT = 20
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d{1,4})(?:, ?(.*))?")  # matched at the beginning of the line
# Syslog facilities that are read: the kernel's own (0), which programs can't use, and local7 (23), which
# `headway fault` uses on a real machine (node/programs/inject_fault.py).
_FACILITIES = frozenset({0, 23})


class KernelLog:
    """Reads the kernel's log from its beginning and as it grows. `path` is /dev/kmsg, or on machines without GPUs a
    plain file with lines of the same form: "PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT"."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.handle = -1
        self.wakes = path.startswith("/dev/")
        self._rest = ""

    def new_records(self) -> list[str]:
        """Returns the new records, each once; [] while there is no log."""
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
            except BrokenPipeError:  # the kernel overwrote unread records; the next read returns the oldest one left
                continue
            except OSError:  # no more records, or one that can't be read
                break
        return found

    def _file(self) -> list[str]:
        data = os.read(self.handle, 1 << 20)
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        if os.fstat(self.handle).st_nlink == 0:  # the file was replaced
            os.close(self.handle)
            self.handle, self._rest = -1, ""
        return lines


def kernel_line(record: str) -> str:
    """Returns the first line of a record's text; "" if a program wrote the record, not the kernel."""
    head, _, text = record.partition(";")
    number = head.partition(",")[0]
    return text.split("\n")[0] if number.isdigit() and int(number) >> 3 in _FACILITIES else ""


def bus_of(address: str) -> str:
    """Returns a PCI address in one form: 00000000:3B:00.0 and 0000:3b:00 -> ":3b:00", with the domain's leading zeros
    removed."""
    parts = address.strip().lower().split(".")[0].split(":")
    domain = parts[0].lstrip("0") if len(parts) > 2 else ""
    return ":".join([domain, *parts[-2:]])


@dataclass
class GpuErrors:
    """The GPU errors in this node's log, kept until the head has acknowledged them. `gpus`: returns PCI bus address
    (":3b:00") -> number of the GPU, as far as is known, without waiting for the driver."""

    node: str
    boot: str  # boot id; the kernel's log starts over with each boot
    gpus: Callable[[], dict[str, int]]
    job_of_pid: Callable[[int], int | None] = lambda pid: job_of(pid, uid_of_process(pid))
    unsent: dict[str, dict[str, Any]] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)  # GPU -> code of its newest error
    # (GPU, code) -> (count, Unix time of the last)
    seen: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)
    _known: dict[str, int] = field(default_factory=dict)

    def record_line(self, record: str, now: float, monotonic: float) -> bool:
        """Records the GPU error in a kernel record, and returns whether there was one."""
        words = record.partition(";")[0].split(",")
        # only at the line's beginning: users' program and file names come later in lines
        found = _XID.match(kernel_line(record))
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
        """Records an error that NVML reported, and returns whether it was new. The log has most of these errors too,
        with more detail, so callers wait for the log's line first."""
        gpu = self._gpu(bus_of(bus))
        if any(
            abs(now - at) < SAME_S for (index, known), (_, at) in self.seen.items() if (index, known) == (gpu, code)
        ):
            return False
        name = f"{self.node}-{self.boot}-nvml-{bus_of(bus)}-{code}-{now:.0f}"
        self.unsent[name] = {
            "id": name, "at": round(now, 3), "code": code, "gpu": gpu, "job": None, "text": "reported by NVML",
        }  # fmt: skip
        if gpu is not None:
            self.last[gpu] = code
            self.seen[gpu, code] = (self.seen.get((gpu, code), (0, 0.0))[0] + 1, now)
        return True

    def record_ended_job(self, kind: str, job: int, why: str, now: float) -> None:
        """Records that the job's processes on this node were ended, so that the job has to run again. `kind` is "lease"
        (node_lease.py) or "orphan" (orphans.py)."""
        name = f"{self.node}-{self.boot}-{kind}-{job}-{now:.0f}"
        fault = {"id": name, "at": round(now, 3), "kind": kind, "action": "restart_job", "code": 0, "gpu": None}
        self.unsent[name] = {**fault, "job": job, "text": f"its processes on this node were ended: {why}"}

    def _gpu(self, bus: str) -> int | None:
        if bus not in self._known:
            self._known = {**self.gpus(), **self._known}
        return self._known.get(bus)

    def pending_message(self) -> dict[str, Any]:
        """Returns this node's part of the next message to the head: at most MOST_IN_A_BEAT unacknowledged errors."""
        return {"node": self.node, "faults": list(self.unsent.values())[:MOST_IN_A_BEAT]}

    def acknowledge(self, names: Any) -> bool:
        """Drops the errors whose ids the head has acknowledged. Returns whether some were dropped and more wait."""
        before = len(self.unsent)
        for name in names if isinstance(names, list) else ():
            self.unsent.pop(str(name), None)
        return 0 < len(self.unsent) < before


def boot_id() -> str:
    """Returns the first 8 characters of the kernel's boot id."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read()[:8]
