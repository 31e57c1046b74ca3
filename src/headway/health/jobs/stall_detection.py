"""Rules that find stalled and idle GPU jobs. Pure. After which time a job counts as stalled or idle: `health` of the cluster file
(clusterfile/models/health.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from headway.domain.cluster import StallRule

# A GPU whose highest utilization over the whole time is below this does no work. Costs look at each sample by itself, and
# draw the line higher: billing/idle_gpus_of_jobs.py.
NO_WORK_BELOW_PERCENT = 1.0
# A GPU at this utilization without memory traffic waits for another GPU that does not answer.
SPINNING_FROM_PERCENT = 99.0
_COMMENT_RULES = re.compile(r"(?:^|[\s,;])(stall|idle)=(\d{1,7})(?=$|[\s,;])")


class StallKind(StrEnum):
    """Whether a job stalls, or has idle GPUs."""

    STALLED = "stalled"
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
    """That a job stalls or is idle, and why it counts as such."""

    kind: StallKind
    why: str


def job_rules(comment: str, stall: StallRule, idle: StallRule) -> tuple[StallRule, StallRule]:
    """Returns the rules (stall, idle) of a job. `--comment "stall=600 idle=0"` on a job overrides the cluster's
    times, in seconds."""
    limits = {kind: int(text) for kind, text in _COMMENT_RULES.findall(comment)}
    return (
        StallRule(limits.get("stall", stall.after_s), stall.acts),
        StallRule(limits.get("idle", idle.after_s), idle.acts),
    )


def detect_stall(rule: StallRule, quiet_s: float, use: GpuUsage | None) -> Stall | None:
    """Returns a stall if the job stalls, else None. `quiet_s`: seconds since the job's last report or line of output, or
    since its start. `use`: GPU usage over the last `after_s` seconds; with None (not known) nothing is reported."""
    if not rule.after_s or quiet_s < rule.after_s or use is None:
        return None
    text = f"no report and no output for {format_duration(rule.after_s)}"
    if use.most < NO_WORK_BELOW_PERCENT:
        return Stall(StallKind.STALLED, f"{text}, and its GPUs did nothing")
    if use.least >= SPINNING_FROM_PERCENT and use.traffic < NO_WORK_BELOW_PERCENT:
        return Stall(StallKind.STALLED, f"{text}, and all its GPUs are at 100 % without memory traffic")
    return None


def detect_idle(rule: StallRule, runs_s: float, use: GpuUsage | None) -> Stall | None:
    """Returns a stall if the job's GPUs were idle, else None. `runs_s`: seconds since the job's start."""
    if not rule.after_s or runs_s < rule.after_s or use is None or use.most >= NO_WORK_BELOW_PERCENT:
        return None
    return Stall(StallKind.IDLE, f"its GPUs did nothing for {format_duration(rule.after_s)}")


def format_duration(seconds: int) -> str:
    """Returns "40 s", "30 min" or "2 h"."""
    for size, word in ((3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {word}"
    return f"{seconds} s"
