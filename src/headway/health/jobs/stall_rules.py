"""Rules that find hung and idle GPU jobs. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from headway.domain.cluster import StallRule

IDLE_BELOW = 1.0  # per cent: a GPU below this utilization is idle
# per cent: a GPU at this utilization without memory traffic waits for another GPU that does not answer
SPINNING_FROM = 99.0
_COMMENT_RULES = re.compile(r"(?:^|[\s,;])(hang|idle)=(\d{1,7})(?=$|[\s,;])")


class StallKind(StrEnum):
    """The kinds of stalls: a job that hangs, or a job with idle GPUs."""

    HANG = "hang"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Usage of all GPUs of a job over a time span, in per cent: the highest utilization, the lowest, and the highest
    memory traffic. `observed_gpus`: number of GPUs with samples for the whole span."""

    most: float
    least: float
    traffic: float
    observed_gpus: float


@dataclass(frozen=True, slots=True)
class Stall:
    """A stall of a job, and why it counts as one."""

    kind: StallKind
    why: str


def job_rules(comment: str, hang: StallRule, idle: StallRule) -> tuple[StallRule, StallRule]:
    """Returns the stall rules (hang, idle) of a job. `--comment "hang=600 idle=0"` on a job overrides the cluster's
    times, in seconds."""
    limits = {kind: int(text) for kind, text in _COMMENT_RULES.findall(comment)}
    return (
        StallRule(limits.get("hang", hang.after_s), hang.acts),
        StallRule(limits.get("idle", idle.after_s), idle.acts),
    )


def detect_hang(rule: StallRule, quiet_s: float, use: GpuUsage | None) -> Stall | None:
    """Returns a stall if the job hangs, else None. `quiet_s`: seconds since the job's last report or line of output, or
    since its start. `use`: GPU usage over the last `after_s` seconds; with None (not known) nothing is reported."""
    if not rule.after_s or quiet_s < rule.after_s or use is None:
        return None
    text = f"no report and no output for {format_duration(rule.after_s)}"
    if use.most < IDLE_BELOW:
        return Stall(StallKind.HANG, f"{text}, and its GPUs did nothing")
    if use.least >= SPINNING_FROM and use.traffic < IDLE_BELOW:
        return Stall(StallKind.HANG, f"{text}, and all its GPUs are at 100 % without memory traffic")
    return None


def detect_idle(rule: StallRule, runs_s: float, use: GpuUsage | None) -> Stall | None:
    """Returns a stall if the job's GPUs were idle, else None. `runs_s`: seconds since the job's start."""
    if not rule.after_s or runs_s < rule.after_s or use is None or use.most >= IDLE_BELOW:
        return None
    return Stall(StallKind.IDLE, f"its GPUs did nothing for {format_duration(rule.after_s)}")


def format_duration(seconds: int) -> str:
    """Returns "40 s", "30 min" or "2 h"."""
    for size, word in ((3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {word}"
    return f"{seconds} s"
