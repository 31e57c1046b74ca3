"""Defines checks and runs them. The checks are in gpu_checks.py, kernel_log_errors.py, disk_checks.py, volume_checks.py,
system_checks.py and host_settings.py; docs/howto/monitoring.md says how to add one.

A check receives the machine's state (`MachineReading`) and returns what is wrong, or None. It changes and repairs nothing:
the policy, on the head and the server, decides what follows from a result."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from agent.config import Config
from agent.gpu.gpu_source import Gpu
from agent.gpu.job_gpus import GpuJob
from agent.log import log

OK, WARN, BAD = "ok", "warn", "bad"
LEVELS = {OK: 0, WARN: 1, BAD: 2}
FOLDER = "/run/headway"
UNFIT = "unfit"  # exists while a check with prolog=True is bad; holds the reason
LOOKED = "looked"  # exists once each of those checks has answered since boot; the prolog waits for it

# Suggested actions, the lightest first.
NONE, WATCH, HOST_DISK, MOUNT = "none", "watch", "host_disk", "mount"
RESET_GPU, REBOOT, DRAIN, REPLACE = "reset_gpu", "reboot", "drain", "replace"


@dataclass(frozen=True)
class CheckResult:
    """What a check found. `action` is one of the suggested actions above; `gpu` is the number of the GPU in
    question."""

    state: str  # "ok" | "warn" | "bad"
    reason: str = ""
    action: str = NONE
    gpu: int | None = None


FINE = CheckResult(OK)


def warn(reason: str, action: str = WATCH, gpu: int | None = None) -> CheckResult:
    """Returns a result that is reported but keeps no job away."""
    return CheckResult(WARN, reason, action, gpu)


def bad(reason: str, action: str = DRAIN, gpu: int | None = None) -> CheckResult:
    """Returns a result that says the node is faulty."""
    return CheckResult(BAD, reason, action, gpu)


@dataclass
class Process:
    """A process of this machine."""

    pid: int
    name: str
    state: str
    since: float  # when it was first seen in this state, by MachineState.now's clock


@dataclass
class MachineReading:
    """The machine as it was last read. Checks look only at this."""

    config: Config
    now: float = 0.0  # seconds by metrics.active_clock.ActiveClock, like all times here
    gpus: list[Gpu] = field(default_factory=list)
    gpus_at: float | None = None  # when the GPUs last answered; None: not yet
    gpu_error: str = ""  # the driver's error when the GPUs did not answer
    jobs: list[GpuJob] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    kernel: list[str] = field(default_factory=list)  # this boot's log lines about errors of kernel or hardware
    sealed_at: float | None = None  # when MUNGE last worked
    skew_s: float | None = None  # this clock minus the head's
    started: float = 0.0  # when the agent started
    kept: dict[str, Any] = field(default_factory=dict)  # what checks store for their next run
    proc: str = "/proc"
    sys: str = "/sys"


@dataclass(frozen=True)
class AgentCheck:
    """A registered check; see `check` for the meaning of the fields."""

    name: str
    run: Callable[[MachineReading], CheckResult | None]
    every_s: float
    prolog: bool  # while it is bad, the prolog sends new jobs away
    idle: bool  # runs only while no job is on the node
    waits: bool  # may wait for a disk or a network, so it runs in its own thread
    limit_s: float  # the longest it may take
    times: int  # how often in a row a new result must appear before it counts
    hangs: str | Callable[[MachineReading], str] = REBOOT  # the action that helps when it takes longer than limit_s

    def hung_result(self, seen: MachineReading, words: str) -> CheckResult:
        """Returns the bad result for a check that has taken longer than its limit."""
        return bad(words, self.hangs if isinstance(self.hangs, str) else self.hangs(seen))


CHECKS: list[AgentCheck] = []
Look = Callable[[MachineReading], "CheckResult | None"]


def check(
    every_s: float = 10,
    *,
    prolog: bool = False,
    idle: bool = False,
    limit_s: float = 0,
    times: int = 1,
    hangs: str | Callable[[MachineReading], str] = REBOOT,
) -> Callable[[Look], Look]:
    """Returns a decorator that registers a check under its function's name.

    - `every_s`: seconds between two runs.
    - `prolog`: while the check is bad, no job starts on this node.
    - `idle`: the check runs only while no job is on the node.
    - `limit_s`: the check may wait for a disk or a network for so long; it then runs in a thread of its own.
    - `times`: how often in a row a new result must appear before it counts.
    - `hangs`: the action that helps when the check takes longer than `limit_s`."""

    def register(look: Look) -> Look:
        name = look.__name__
        CHECKS.append(AgentCheck(name, look, every_s, prolog, idle, limit_s > 0, limit_s, times, hangs))
        return look

    return register


@dataclass
class _State:
    check: AgentCheck
    result: CheckResult = FINE
    known: bool = False  # whether a result has been reported
    at: float = 0.0  # Unix time of the result
    due: float = 0.0
    odd: int = 0  # how often in a row the check has disagreed with `result`
    thread: threading.Thread | None = None
    began: float = 0.0
    answer: list[CheckResult] = field(default_factory=list)


class Runner:
    """Runs the checks that are due, and returns the results that changed."""

    def __init__(self, checks: Iterable[AgentCheck] | None = None, folder: str = FOLDER) -> None:
        self.states = {node_check.name: _State(node_check) for node_check in (CHECKS if checks is None else checks)}
        self._unfit, self._looked = f"{folder}/{UNFIT}", f"{folder}/{LOOKED}"
        self.looked = False  # whether every check with prolog=True has answered

    def run_due(self, seen: MachineReading, wall: float, *, whole: bool = True) -> list[dict[str, Any]]:
        """Runs the checks that are due and returns the results that changed. `whole`: whether `seen` is complete (the
        GPUs were read)."""
        changed = []
        for state in self.states.values():
            found = self._run_if_due(state, seen)
            if found is not None and self._counts(state, found):
                state.result, state.at, state.odd = found, wall, 0
                changed.append(result_message(state))
        prolog_states = [state for state in self.states.values() if state.check.prolog]
        self.looked = self.looked or (whole and all(state.known and not state.odd for state in prolog_states))
        self._mark([state.result.reason for state in prolog_states if state.result.state == BAD])
        return changed

    def make_prolog_checks_due(self) -> None:
        """Makes all checks with prolog=True due at the next run."""
        for state in self.states.values():
            if state.check.prolog:
                state.due = 0.0

    def _run_if_due(self, state: _State, seen: MachineReading) -> CheckResult | None:
        """Returns the check's result; None if it is not due or has not answered yet."""
        node_check = state.check
        if state.thread is not None:
            return self._waited(state, seen)
        if seen.now < state.due or (node_check.idle and seen.jobs):
            return None
        state.due = seen.now + node_check.every_s
        if not node_check.waits:
            return run_check(node_check, seen)
        state.answer, state.began = [], seen.now
        state.thread = threading.Thread(target=lambda: state.answer.append(run_check(node_check, seen)), daemon=True)
        state.thread.start()
        return None

    def _waited(self, state: _State, seen: MachineReading) -> CheckResult | None:
        if state.thread is not None and not state.thread.is_alive():
            state.thread = None
            return state.answer[0]
        if seen.now - state.began > state.check.limit_s:
            words = f"{state.check.name} has not finished within {state.check.limit_s:g} s: it hangs"
            return state.check.hung_result(seen, words)
        return None

    @staticmethod
    def _counts(state: _State, found: CheckResult) -> bool:
        if (found.state, found.action, found.gpu) == (state.result.state, state.result.action, state.result.gpu):
            state.odd = 0
            if not state.known:  # the first result is reported even if it is ok: before a restart it may have been bad
                state.known = True
                return True
            state.result = replace(state.result, reason=found.reason)  # the figures in the reason may have changed
            return False
        state.odd += 1
        state.known = state.known or state.odd >= state.check.times
        return state.odd >= state.check.times

    def _mark(self, reasons: list[str]) -> None:
        """Writes the files UNFIT and LOOKED, from which the prolog learns the results: it has no time to run checks
        itself."""
        try:
            if reasons:
                with open(f"{self._unfit}.new", "w") as file:
                    file.write("; ".join(reasons) + "\n")
                os.replace(f"{self._unfit}.new", self._unfit)
            elif self.looked and os.path.exists(self._unfit):
                os.unlink(self._unfit)
            if self.looked and not os.path.exists(self._looked):
                os.close(os.open(self._looked, os.O_CREAT | os.O_WRONLY, 0o644))
        except OSError as error:
            log(f"{self._unfit}: {error}")


def run_check(node_check: AgentCheck, seen: MachineReading) -> CheckResult:
    """Returns the check's result. An exception in a check becomes a warning, so that the other checks still run."""
    try:
        return node_check.run(seen) or FINE
    except Exception as error:
        return warn(f"the check itself failed: {type(error).__name__}: {error}")


def result_message(state: _State) -> dict[str, Any]:
    """Returns the result as it is sent to the head."""
    found = state.result
    return {
        "check": state.check.name,
        "at": round(state.at, 3),
        "state": found.state,
        "reason": found.reason[:500],
        "action": found.action,
        "gpu": found.gpu,
    }


def run_every_check(seen: MachineReading, checks: Iterable[AgentCheck] | None = None) -> list[dict[str, Any]]:
    """Runs all checks once, as after a repair, and returns their messages. A check that hangs is bad."""
    rows = []
    for node_check in CHECKS if checks is None else checks:
        state = _State(node_check, at=time.time())
        thread = threading.Thread(target=lambda s=state: s.answer.append(run_check(s.check, seen)), daemon=True)
        thread.start()
        thread.join(node_check.limit_s or 10)
        state.result = (
            state.answer[0] if state.answer else node_check.hung_result(seen, f"{node_check.name} has not finished")
        )
        rows.append(result_message(state))
    return rows
