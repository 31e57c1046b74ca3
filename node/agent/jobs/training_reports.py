"""Receives the progress reports of trainings, and selects what is sent to the head."""

from __future__ import annotations

import json
import math
import os
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.processes import job_of

SOON_S = 1.0  # least time between two reports of a job that are sent immediately
RATE_OVER_S = 30.0  # the token rate is a mean over so many seconds
TIMES = 2  # how often each report is sent, because a datagram may be lost
FORGET_S = 600.0  # a job without reports for so long is forgotten by its node
MOST_BYTES = 4096
MOST_SENT = 32 * 1024  # bytes in one message to the head: sealed, it stays below UDP's limit of 64 KiB
MEASURED = frozenset(
    {"t", "n", "ago_s", "tokens_per_s", "torch_without_cuda", "torch_cuda_too_new"}
)  # fields that the agents add
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]{0,63}")


def parse_report(data: bytes) -> dict[str, Any] | None:
    """Returns the values of a training's report: whole numbers for step and tokens, finite numbers for the rest; None
    for anything else. A loss that is not finite is kept as "nan", because users want to see that."""
    try:
        report = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict):
        return None
    values: dict[str, Any] = {}
    for name, value in list(report.items())[:20]:
        refused = name in MEASURED or not _NAME.fullmatch(name)
        if refused or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name in ("step", "tokens"):
            if isinstance(value, int) and 0 <= value < 2**63:
                values[name] = value
        elif isinstance(value, int) and abs(value) >= 2**63:
            continue
        elif math.isfinite(value):
            values[name] = value
        elif name == "loss":
            values[name] = "nan"
    return values or None


@dataclass
class JobReport:
    """The newest report of one job, and the data for its token rate."""

    values: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0  # monotonic seconds
    left: int = 0  # how often it is still to be sent, at most TIMES
    number: int = 0
    soon: float = -1e9  # when a report was last sent immediately
    flags: dict[str, int] = field(default_factory=dict)  # found by the agent, in every later report
    _tokens: deque[tuple[float, int]] = field(default_factory=deque)

    def update(self, values: dict[str, Any], now: float) -> None:
        """Takes a new report. Step and loss that have not been sent yet are kept if the new report lacks them."""
        before = self.values if self.left == TIMES else {}
        went_back = values.get("step", math.inf) < before.get("step", 0)
        unsent = {} if went_back else {name: before[name] for name in ("step", "loss") if name in before}
        self.values, self.at, self.left = {**unsent, **values}, now, TIMES
        self.number += 1
        tokens = values.get("tokens")
        if tokens is None:
            return
        seen = self._tokens
        if seen and tokens < seen[-1][1]:  # the training continued from a checkpoint
            seen.clear()
        if not seen or now - seen[-1][0] >= RATE_OVER_S / 60:
            seen.append((now, tokens))
        while now - seen[0][0] > RATE_OVER_S and len(seen) > 2:
            seen.popleft()

    @property
    def tokens_per_s(self) -> float | None:
        """Returns the token rate over the last RATE_OVER_S; None while it is unknown."""
        if len(self._tokens) < 2:
            return None
        (began, first), (ended, last) = self._tokens[0], self._tokens[-1]
        return round((last - first) / (ended - began), 3) if ended > began else None


class Reports:
    """Receives the trainings' datagrams and sends what is new every FLUSH_S."""

    def __init__(self, send: Callable[[dict[str, Any]], None], who: Callable[[int, int], int | None] = job_of) -> None:
        self._send = send
        self._who = who
        self._run = os.urandom(4).hex()  # random for each start, because a restarted agent counts from 1 again
        self.jobs: dict[int, JobReport] = {}

    def receive(self, data: bytes, pid: int, uid: int, now: float) -> None:
        """Takes one datagram of process `pid`. The first report of a training is sent immediately. `now`: monotonic
        seconds."""
        job = self._who(pid, uid)
        values = parse_report(data) if job is not None and len(data) <= MOST_BYTES else None
        if job is None or values is None:
            return
        spoken = self.jobs.setdefault(job, JobReport())
        # or the training continued from a checkpoint
        begins = values.get("step", 0) < spoken.values.get("step", 1 << 63)
        spoken.update(values, now)
        if begins and now - spoken.soon >= SOON_S:
            spoken.soon = now
            self._send({"jobs": {str(job): self._row(spoken, now)}})

    def set_flag(self, job: int, flag: str, now: float) -> None:
        """Adds something that the agent has found out about a job, and sends it with the next reports."""
        spoken = self.jobs.setdefault(job, JobReport())
        spoken.flags[flag] = 1
        spoken.at, spoken.left = now, TIMES
        spoken.number += 1

    def flush(self, now: float) -> None:
        """Sends the reports that are new, and forgets jobs that have been silent for FORGET_S."""
        for job in [job for job, spoken in self.jobs.items() if now - spoken.at > FORGET_S]:
            del self.jobs[job]
        rows: dict[str, Any] = {}
        size = 0
        for job, spoken in self.jobs.items():
            if not spoken.left:
                continue
            spoken.left -= 1
            row = self._row(spoken, now)
            size += len(json.dumps(row))
            if rows and size > MOST_SENT:
                self._send({"jobs": rows})
                rows, size = {}, len(json.dumps(row))
            rows[str(job)] = row
        if rows:
            self._send({"jobs": rows})

    def _row(self, spoken: JobReport, now: float) -> dict[str, Any]:
        """Returns the report as it is sent, with its age, so that the last seconds of a run can be placed in time after
        it has ended."""
        rate = {} if spoken.tokens_per_s is None else {"tokens_per_s": spoken.tokens_per_s}
        ago_s = round(max(0.0, now - spoken.at), 1)
        return {**spoken.values, **spoken.flags, **rate, "n": f"{self._run}.{spoken.number}", "ago_s": ago_s}
