"""Rules that find hung and idle GPU jobs. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from headway.domain.cluster import StallRule

IDLE_BELOW = 1.0  # per cent: what a GPU shows that does nothing
SPINNING_FROM = 99.0  # per cent: with no memory traffic beside it, a GPU waits for another that never answers
_COMMENT_RULES = re.compile(r"(?:^|[\s,;])(hang|idle)=(\d{1,7})(?=$|[\s,;])")


class StallKind(StrEnum):
    HANG = "hang"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Of all GPUs of a job over a span, in per cent: the most that any did, the least, and the most memory traffic. `seen`:
    how many of them were looked at for the whole of it."""

    most: float
    least: float
    traffic: float
    observed_gpus: float


@dataclass(frozen=True, slots=True)
class Stall:
    kind: StallKind
    why: str


def job_rules(comment: str, hang: StallRule, idle: StallRule) -> tuple[StallRule, StallRule]:
    """The cluster's rules as a job has them that says `--comment "hang=600 idle=0"`, in seconds."""
    said = {kind: int(text) for kind, text in _COMMENT_RULES.findall(comment)}
    return (
        StallRule(said.get("hang", hang.after_s), hang.acts),
        StallRule(said.get("idle", idle.after_s), idle.acts),
    )


def detect_hang(rule: StallRule, quiet_s: float, use: GpuUsage | None) -> Stall | None:
    """`quiet_s`: since the job's last report or line of output, or its start. `use`: of the last `after_s`; None where it
    isn't known, and then nothing is said of it."""
    if not rule.after_s or quiet_s < rule.after_s or use is None:
        return None
    told = f"no report and no output for {format_duration(rule.after_s)}"
    if use.most < IDLE_BELOW:
        return Stall(StallKind.HANG, f"{told}, and its GPUs did nothing")
    if use.least >= SPINNING_FROM and use.traffic < IDLE_BELOW:
        return Stall(StallKind.HANG, f"{told}, and all its GPUs spin without memory traffic")
    return None


def detect_idle(rule: StallRule, runs_s: float, use: GpuUsage | None) -> Stall | None:
    """`runs_s`: since the job's start."""
    if not rule.after_s or runs_s < rule.after_s or use is None or use.most >= IDLE_BELOW:
        return None
    return Stall(StallKind.IDLE, f"its GPUs did nothing for {format_duration(rule.after_s)}")


def format_duration(seconds: int) -> str:
    """Returns "40 s", "30 min" or "2 h"."""
    for size, word in ((3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {word}"
    return f"{seconds} s"
