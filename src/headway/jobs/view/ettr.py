"""Computes how much of a training's time was productive, from the steps that it reported. Pure.

ETTR, the effective training time ratio, is the share of the time since a job's first report that was spent on steps
which were not repeated later: time between two runs, and steps repeated from a checkpoint, do not count (the measured
quantity of "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", Meta, 2024)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from headway.domain.billing.ledger import MAX_STORED_INTEGER

MAX_MARKS = 2000


@dataclass
class CheckpointStalls:
    """How often a training saved a checkpoint, and for how many seconds that stalled it. Reports count from 0 in
    each of its runs."""

    count: int = 0
    stalled_s: float = 0.0
    _last: tuple[int, float] = (0, 0.0)

    def add_report(self, count: int, stalled_s: float) -> None:
        """Adds what a report says of its run so far. Sums are capped at the largest integer that the database
        stores."""
        before = self._last if count >= self._last[0] else (0, 0.0)
        self.count = min(self.count + count - before[0], MAX_STORED_INTEGER)
        self.stalled_s = min(self.stalled_s + max(0.0, stalled_s - before[1]), float(MAX_STORED_INTEGER))
        self._last = (count, stalled_s)

    def start_new_run(self) -> None:
        """Notes that the next report is from another run."""
        self._last = (0, 0.0)


@dataclass
class EffectiveTime:
    """Sums of productive and lost time. Times are in unix seconds. `restarts` counts how often the training was
    started again."""

    first_report_at: float = 0.0
    last_report_at: float = 0.0
    lost_s: float = 0.0  # seconds of work that was repeated
    down_s: float = 0.0  # seconds from the last report before each restart to the first one after it
    restarts: int = 0
    # (time of the last report before a restart, seconds of work lost by it)
    losses: list[tuple[float, float]] = field(default_factory=list)
    _steps: list[int] = field(default_factory=list)  # steps of the current run, rising
    # When each step was reported, in unix seconds minus all wasted time before it.
    _times: list[float] = field(default_factory=list)

    def add_report(self, step: int, at: float, restarted: bool = False) -> None:
        """Adds a report. `restarted` marks the first report after a restart, if the training says so; a smaller
        step also counts as a restart. A report older than the last one is ignored."""
        if at <= 0 or at < self.last_report_at:
            return
        if not self._steps:
            self.first_report_at = at
        elif restarted or step < self._steps[-1]:
            self._go_on(step, at)
        if not self._steps or step > self._steps[-1]:
            self._steps.append(step)
            self._times.append(at - self._wasted_s)
            if len(self._steps) > MAX_MARKS:  # keeps every other mark, and the last
                self._steps, self._times = self._steps[1::2], self._times[1::2]
        self.last_report_at = at

    @property
    def ettr(self) -> float | None:
        """Returns the ratio, 0 to 1; None before the second report."""
        spent_s = self.last_report_at - self.first_report_at
        return max(0.0, 1.0 - self._wasted_s / spent_s) if spent_s > 0 else None

    @property
    def up_s(self) -> float:
        """Returns the seconds from the first report to the last, without the time between runs."""
        return max(0.0, self.last_report_at - self.first_report_at - self.down_s)

    @property
    def _wasted_s(self) -> float:
        return self.lost_s + self.down_s

    def _go_on(self, step: int, at: float) -> None:
        """Continues from this step after a restart: the work since the run first reached it was lost, none where
        it had not reached it."""
        lost_s = self.last_report_at - self._wasted_s - self._when(step)
        self.restarts += 1
        self.lost_s += lost_s
        self.losses.append((self.last_report_at, lost_s))
        self.down_s += at - self.last_report_at
        keep = bisect_left(self._steps, step)
        del self._steps[keep:], self._times[keep:]

    def _when(self, step: int) -> float:
        """Returns when the current run reached this step, on the clock of `_times`; interpolates between two
        reports."""
        place = bisect_left(self._steps, step)
        if place == len(self._steps):
            return self.last_report_at - self._wasted_s
        if place == 0 or self._steps[place] == step:
            return self._times[place]
        low, high = self._steps[place - 1], self._steps[place]
        share = (step - low) / (high - low)
        return self._times[place - 1] + share * (self._times[place] - self._times[place - 1])
