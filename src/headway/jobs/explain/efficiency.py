"""How well a job used what it was given, and what to change for the next one. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headway.jobs.explain.phrases import format_duration

MIN_RAN_S = 120  # of a shorter job the start is most of its time
_GPUS_BUSY_PERCENT = 70.0  # mean utilisation from which on GPUs count as well used
_GPUS_IDLE_PERCENT = 2.0
_CPUS_FULL_SHARE = 0.85  # of the allocated CPUs: they may be what the GPUs wait for
_CPUS_LOW_SHARE = 0.25
_MEMORY_LOW_SHARE = 0.3
_MEMORY_FULL_SHARE = 0.92
_TIME_LOW_SHARE = 0.25
_ROOM = 1.25  # what is suggested beyond what was used
_SMALL_MEMORY_MIB = 4096  # requests below are not worth a remark
_SHORT_LIMIT_S = 1800


@dataclass(frozen=True, slots=True)
class Use:
    """What a job was given and what it used. None: not measured."""

    ran_s: float
    completed: bool
    gpus: int = 0
    gpu_percent: float | None = None  # mean over all GPUs and the whole run
    gpu_memory_share: float | None = None  # highest of any GPU
    cpus: int = 0
    cpus_busy: float | None = None  # mean number, of all nodes together
    nodes: int = 1
    memory_mib: float = 0  # allocated, of one node
    memory_used_mib: float | None = None  # highest of any node
    limit_s: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One resource: how it was used, and what to change; "" if nothing."""

    level: Literal["ok", "warn", "bad"]
    resource: str
    text: str
    advice: str = ""


def assess(use: Use) -> tuple[Finding, ...]:
    """Returns what was found about each measured resource; () for a job that ran for less than MIN_RAN_S."""
    if use.ran_s < MIN_RAN_S:
        return ()
    found = (_gpus(use), _gpu_memory(use), _cpus(use), _memory(use), _time(use))
    return tuple(finding for finding in found if finding)


def headline(findings: tuple[Finding, ...], *, ended: bool) -> str:
    """Returns the verdict on the whole job."""
    bad = {finding.resource for finding in findings if finding.level == "bad"}
    if "GPUs" in bad:
        return "Its GPUs did nothing"
    if bad:
        return "Its memory was nearly full" if ended else "Its memory is about to run out"
    changes = sum(finding.level == "warn" for finding in findings)
    return "Well used" if not changes else "One thing to change" if changes == 1 else f"{changes} things to change"


def _gpus(use: Use) -> Finding | None:
    if not use.gpus or use.gpu_percent is None:
        return None
    text = f"{use.gpu_percent:.0f} % busy on average"
    if use.gpu_percent >= _GPUS_BUSY_PERCENT:
        return Finding("ok", "GPUs", text)
    if use.gpu_percent < _GPUS_IDLE_PERCENT:
        return Finding("bad", "GPUs", text, "Check that the program uses CUDA, or request no GPUs.")
    if use.cpus and use.cpus_busy is not None and use.cpus_busy >= _CPUS_FULL_SHARE * use.cpus:
        advice = "The CPUs are full, so the GPUs wait for them: request more with --cpus-per-gpu, or prepare the data before."
    else:
        advice = "Load data with more workers, use larger batches, save checkpoints less often, or request fewer GPUs."
    return Finding("warn", "GPUs", text, advice)


def _gpu_memory(use: Use) -> Finding | None:
    share = use.gpu_memory_share
    if not use.gpus or share is None:
        return None
    text = f"at most {share * 100:.0f} % of a GPU's memory"
    if share >= _MEMORY_LOW_SHARE or (use.gpu_percent or 0) < _GPUS_IDLE_PERCENT:
        return Finding("ok", "GPU memory", text)
    return Finding("warn", "GPU memory", text, "A larger batch fits, or a smaller GPU or a part of one would do.")


def _cpus(use: Use) -> Finding | None:
    if not use.cpus or use.cpus_busy is None:
        return None
    share = use.cpus_busy / use.cpus
    text = f"{use.cpus_busy:.1f} of {use.cpus} busy on average"
    if share >= _CPUS_LOW_SHARE or use.cpus <= 2 * use.nodes or use.gpus:
        return Finding("ok", "CPUs", text)
    needed = max(1, math.ceil(use.cpus_busy * _ROOM))
    return Finding("warn", "CPUs", text, f"Request about {needed} in all, for example by --cpus-per-task.")


def _memory(use: Use) -> Finding | None:
    used = use.memory_used_mib
    if not use.memory_mib or used is None:
        return None
    unit, size, digits = ("GiB", 1024, 1) if use.memory_mib >= 1024 else ("MiB", 1, 0)
    text = f"at most {used / size:.{digits}f} of {use.memory_mib / size:.{digits}f} {unit} on a node"
    if used >= _MEMORY_FULL_SHARE * use.memory_mib:
        return Finding("bad", "Memory", text, "Request more by --mem: a job that reaches its limit is killed.")
    if used >= _MEMORY_LOW_SHARE * use.memory_mib or use.memory_mib <= _SMALL_MEMORY_MIB or use.gpus:
        return Finding("ok", "Memory", text)
    return Finding("warn", "Memory", text, f"Request --mem={max(1, math.ceil(used * _ROOM / 1024))}G.")


def _time(use: Use) -> Finding | None:
    if not use.completed or not use.limit_s:
        return None
    text = f"{format_duration(use.ran_s)} of {format_duration(use.limit_s)}"
    if use.ran_s >= _TIME_LOW_SHARE * use.limit_s or use.limit_s <= _SHORT_LIMIT_S:
        return Finding("ok", "Time", text)
    minutes = max(10, math.ceil(use.ran_s * 1.5 / 60))
    return Finding("warn", "Time", text, f"Request --time={minutes}: Slurm starts shorter jobs earlier, in gaps.")
