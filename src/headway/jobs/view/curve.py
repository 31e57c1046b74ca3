"""The curve of a metric over steps, thinned to a number of points while it grows. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_POINTS = 500


@dataclass
class Curve:
    """Points (step, value) of a metric: at most `most`, evenly thinned; the last point is always included."""

    most: int = MAX_POINTS
    _points: list[tuple[int, float]] = field(default_factory=list)
    _last: tuple[int, float] | None = None  # the newest point, also when `_points` does not include it
    _stride: int = 1
    _skipped: int = 0

    @property
    def points(self) -> list[tuple[int, float]]:
        """Returns the kept points, with the newest point last."""
        if self._last and (not self._points or self._points[-1][0] != self._last[0]):
            return [*self._points, self._last]
        return list(self._points)

    def add(self, step: int, value: float) -> None:
        """Adds a point. Points from the same step on, which the job repeats, are replaced."""
        self.forget_from(step)
        self._last = (step, value)
        if self._skipped:
            self._skipped -= 1
            return
        self._points.append(self._last)
        self._skipped = self._stride - 1
        if len(self._points) >= self.most:
            self._points = self._points[::2]  # this drops the last point, which `_last` keeps
            self._stride *= 2

    def forget_from(self, step: int) -> None:
        """Drops the points from this step on."""
        if self._last is None or self._last[0] < step:
            return
        self._points = [point for point in self._points if point[0] < step]
        self._last = self._points[-1] if self._points else None
        self._skipped = 0
