"""The GPU errors (NVIDIA XID) of this node, from the kernel's log and from NVML, kept until the head has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.checks.kernel_log_reader import kernel_line
from agent.processes import job_of, uid_of_process

SAME_S = 10.0  # the same error from the log and from NVML within so long counts once
MOST_IN_A_BEAT = 20
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d{1,4})(?:, ?(.*))?")  # matched at the beginning of the line


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
        (node_lease.py) or "orphan" (orphaned_jobs.py)."""
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
