"""Goodput: the productive share of paid GPU time, what took the rest, and the checkpoint interval that loses least. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

# How a run ended that Slurm started again, or would have: what it had done since its last checkpoint is done again.
CUT_SHORT = frozenset({"NODE_FAIL", "PREEMPTED", "REQUEUED"})


@dataclass(frozen=True, slots=True)
class Parts:
    """GPU-seconds (of a job: seconds times its GPUs). `waiting` is time in the queue, which nobody paid for."""

    productive: int = 0
    lost: int = 0
    idle: int = 0
    waiting: int = 0

    @property
    def held(self) -> int:
        return self.productive + self.lost + self.idle

    @property
    def goodput(self) -> float | None:
        """The productive share of what was held and paid; None where nothing was."""
        return self.productive / self.held if self.held else None

    @property
    def ettr(self) -> float | None:
        """Effective training time ratio: the same with the queue counted."""
        whole = self.held + self.waiting
        return self.productive / whole if whole else None


@dataclass(frozen=True, slots=True)
class Cause:
    """`kind`: fault | preemption | idle | notebook | checkpoints | queue."""

    kind: str
    what: str
    gpu_s: int
    usd: Fraction
    jobs: tuple[int, ...] = ()  # those that lost most, the most first


def ranked(causes: Iterable[Cause], most: int = 20) -> list[Cause]:
    """The dearest first; those that cost nothing are left out."""
    return sorted((one for one in causes if one.usd > 0), key=lambda one: (-one.usd, one.what))[:most]


def lost_s(state: str, start: int, end: int, saved_at: float | None) -> int:
    """Of a run that ended: seconds at its end whose work is done again. `saved_at`: when its last checkpoint was written,
    None where it never said so: then all of it is."""
    if state not in CUT_SHORT or not end:
        return 0
    kept = 0.0 if saved_at is None else min(max(saved_at - start, 0.0), float(end - start))
    return round(end - start - kept)


def within(start: int, end: int, lost_s: int, idle_s: int, low: int, high: int) -> tuple[int, int, int]:
    """Seconds of a run that lie from `low` until `high`: all, lost (at its end), idle (of the rest, in proportion). Wherever a
    stretch is cut, each is the sum of its parts."""
    during = max(0, min(end, high) - max(start, low))
    kept = max(start, end - lost_s)
    lost = max(0, min(end, high) - max(kept, low)) if lost_s else 0
    alive = max(1, kept - start)

    def idled(until: int) -> int:
        return min(idle_s, alive) * max(0, min(kept, until) - start) // alive

    return during, lost, idled(max(low, high)) - idled(low)


def interval_s(failure_s: float, write_s: float) -> float:
    """Seconds between checkpoints that waste least: sqrt(2 * T_f * T_s) (Young), T_f the mean time between failures of the
    job, T_s the time that training stands still for a checkpoint. Never shorter than the writing itself."""
    return max(write_s, math.sqrt(2.0 * failure_s * write_s))


def waste(every_s: float, failure_s: float, write_s: float) -> float:
    """The share of time that goes into writing checkpoints and into work done again, 0 to 1."""
    return min(1.0, write_s / every_s + every_s / (2.0 * failure_s))


@dataclass(frozen=True, slots=True)
class Advice:
    """`saves`: the share of the job's time that the better interval would give back."""

    now_s: float
    best_s: float
    saves: float


def advice(every_s: float, failure_s: float, write_s: float) -> Advice:
    best = interval_s(failure_s, write_s)
    better = waste(every_s, failure_s, write_s) - waste(best, failure_s, write_s)
    return Advice(every_s, best, max(0.0, better))
