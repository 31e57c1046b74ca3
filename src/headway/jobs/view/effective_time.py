"""How much of a training's time was productive, from the steps that it reported. Pure.

ETTR, the effective training time ratio, is the share of the time since a job's first report that made steps which are
still part of it: time between two runs, and steps done again from a checkpoint, count for nothing (the measured side of
"Revisiting Reliability in Large-Scale Machine Learning Research Clusters", Meta, 2024)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from headway.domain.billing import MAX_STORED_INTEGER

MAX_MARKS = 2000


@dataclass
class CheckpointStalls:
    """How often a training saved, and how long it stood still for that; each of its runs counts from 0."""

    count: int = 0
    stalled_s: float = 0.0
    _last: tuple[int, float] = (0, 0.0)

    def add_report(self, count: int, stalled_s: float) -> None:
        """What a report says of its run so far. Sums end at what a database holds: each of many runs may say much."""
        before = self._last if count >= self._last[0] else (0, 0.0)
        self.count = min(self.count + count - before[0], MAX_STORED_INTEGER)
        self.stalled_s = min(self.stalled_s + max(0.0, stalled_s - before[1]), float(MAX_STORED_INTEGER))
        self._last = (count, stalled_s)

    def start_new_run(self) -> None:
        """The next report is of another run."""
        self._last = (0, 0.0)


@dataclass
class EffectiveTime:
    """Times in unix seconds. `restarts` counts how often it was started again."""

    first_report_at: float = 0.0
    last_report_at: float = 0.0
    lost_s: float = 0.0  # work that was done again
    down_s: float = 0.0  # from the last report before a restart until the training was where it went on
    restarts: int = 0
    losses: list[tuple[float, float]] = field(
        default_factory=list
    )  # (last report before a restart, seconds lost of it)
    _steps: list[int] = field(default_factory=list)  # of the run as it stands, rising
    _times: list[float] = field(default_factory=list)  # of a clock that stands still while nothing counts

    def add_report(self, step: int, at: float, restarted: bool = False) -> None:
        """A report; `restarted`: the first one since the training was started again, as it says itself. Going back says so
        too. One that is older than the last is passed over."""
        if at <= 0 or at < self.last_report_at:
            return
        if not self._steps:
            self.first_report_at = at
        elif restarted or step < self._steps[-1]:
            self._go_on(step, at)
        if not self._steps or step > self._steps[-1]:
            self._steps.append(step)
            self._times.append(at - self._wasted_s)
            if len(self._steps) > MAX_MARKS:  # every other one, the last kept
                self._steps, self._times = self._steps[1::2], self._times[1::2]
        self.last_report_at = at

    @property
    def ettr(self) -> float | None:
        """0 to 1; None before there is a time to speak of."""
        spent_s = self.last_report_at - self.first_report_at
        return max(0.0, 1.0 - self._wasted_s / spent_s) if spent_s > 0 else None

    @property
    def up_s(self) -> float:
        """From the first report to the last, without the time between two runs."""
        return max(0.0, self.last_report_at - self.first_report_at - self.down_s)

    @property
    def _wasted_s(self) -> float:
        return self.lost_s + self.down_s

    def _go_on(self, step: int, at: float) -> None:
        """From this step: all since it was done before came to nothing, and nothing where it was not."""
        lost_s = self.last_report_at - self._wasted_s - self._when(step)
        self.restarts += 1
        self.lost_s += lost_s
        self.losses.append((self.last_report_at, lost_s))
        self.down_s += at - self.last_report_at
        keep = bisect_left(self._steps, step)
        del self._steps[keep:], self._times[keep:]

    def _when(self, step: int) -> float:
        """When the run as it stands reached this step, on the clock of `_times`; between two reports in proportion."""
        place = bisect_left(self._steps, step)
        if place == len(self._steps):
            return self.last_report_at - self._wasted_s
        if place == 0 or self._steps[place] == step:
            return self._times[place]
        low, high = self._steps[place - 1], self._steps[place]
        share = (step - low) / (high - low)
        return self._times[place - 1] + share * (self._times[place] - self._times[place - 1])
