"""Goodput: the productive share of paid GPU time, the causes of the rest, and the checkpoint interval that loses
least. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

# End states of runs that Slurm requeued or could have requeued: the work since the last checkpoint has to be repeated.
CUT_SHORT = frozenset({"NODE_FAIL", "PREEMPTED", "REQUEUED"})


@dataclass(frozen=True, slots=True)
class Parts:
    """GPU-seconds (for a job: its seconds multiplied by its GPUs). `waiting` is time in the queue, which is not
    billed."""

    productive: int = 0
    lost: int = 0
    idle: int = 0
    waiting: int = 0

    @property
    def allocated(self) -> int:
        """Returns the GPU-seconds that were allocated to the job."""
        return self.productive + self.lost + self.idle

    @property
    def goodput(self) -> float | None:
        """Returns the productive share of the allocated (and billed) time, or None if nothing was allocated."""
        return self.productive / self.allocated if self.allocated else None

    @property
    def ettr(self) -> float | None:
        """Returns the effective training time ratio: goodput with the time in the queue counted as well."""
        whole = self.allocated + self.waiting
        return self.productive / whole if whole else None


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of lost GPU time. `kind`: fault | preemption | idle | notebook | checkpoints | queue."""

    kind: str
    what: str
    gpu_s: int
    usd: Fraction
    jobs: tuple[int, ...] = ()  # the jobs that lost most, in descending order


def ranked(causes: Iterable[Cause], most: int = 20) -> list[Cause]:
    """Returns the `most` most expensive causes, in descending order of cost. Causes that cost nothing are omitted."""
    return sorted((cause for cause in causes if cause.usd > 0), key=lambda cause: (-cause.usd, cause.what))[:most]


def lost_s(state: str, start: int, end: int, saved_at: float | None) -> int:
    """Returns how many seconds at the end of an ended run have to be repeated.

    `saved_at`: when the last checkpoint was written, unix seconds; None if the run never reported one, in which case
    all of the run is lost."""
    if state not in CUT_SHORT or not end:
        return 0
    kept = 0.0 if saved_at is None else min(max(saved_at - start, 0.0), float(end - start))
    return round(end - start - kept)


def part_within(start: int, end: int, lost_s: int, idle_s: int, low: int, high: int) -> tuple[int, int, int]:
    """Returns the seconds of a run between `low` and `high`: (all, lost, idle). Lost time lies at the end of the run;
    idle time is spread evenly over the rest. If an interval is split, each value is the sum over the parts."""
    during = max(0, min(end, high) - max(start, low))
    kept = max(start, end - lost_s)
    lost = max(0, min(end, high) - max(kept, low)) if lost_s else 0
    alive = max(1, kept - start)

    def idled(until: int) -> int:
        return min(idle_s, alive) * max(0, min(kept, until) - start) // alive

    return during, lost, idled(max(low, high)) - idled(low)


def interval_s(failure_s: float, write_s: float) -> float:
    """Returns the seconds between checkpoints that waste least: sqrt(2 * T_f * T_s) (Young), where T_f is the mean
    time between failures of the job and T_s the time that training stops for a checkpoint. Never shorter than the
    write itself."""
    return max(write_s, math.sqrt(2.0 * failure_s * write_s))


def wasted_share(every_s: float, failure_s: float, write_s: float) -> float:
    """Returns the share of time, 0 to 1, spent on writing checkpoints and on repeating work."""
    return min(1.0, write_s / every_s + every_s / (2.0 * failure_s))


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommended checkpoint interval, in seconds. `saves`: the share of the job's time that it would save."""

    now_s: float
    best_s: float
    saves: float


def checkpoint_advice(every_s: float, failure_s: float, write_s: float) -> Advice:
    """Compares the present checkpoint interval `every_s` with the best one. All arguments are in seconds."""
    best = interval_s(failure_s, write_s)
    better = wasted_share(every_s, failure_s, write_s) - wasted_share(best, failure_s, write_s)
    return Advice(every_s, best, max(0.0, better))
