"""Parses the lines that headway_train.metrics_file writes. Users can write anything into these files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_METRICS = 1000  # of a job
MAX_STEP = 2**53  # steps are stored as doubles
_MAX_LINE = 64 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/ ]{0,127}")


@dataclass(frozen=True, slots=True)
class Report:
    """One report: its values by name. `at`: Unix seconds."""

    step: int
    at: float
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class RunBegins:
    """A process begins to report. `began`: Unix seconds."""

    began: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """So many reports were not kept."""

    count: int


@dataclass
class LineParser:
    """Parses lines, and holds what later lines depend on."""

    names: list[str] = field(default_factory=list)
    step: int = 0

    def parse(self, data: bytes) -> Iterator[Report | RunBegins | Dropped]:
        """Yields what whole lines say. A line that can't be read counts as a dropped report."""
        for line in data.split(b"\n"):
            if not line:
                continue
            try:
                parsed = self._line(json.loads(line)) if len(line) <= _MAX_LINE else Dropped(1)
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                parsed = Dropped(1)
            if parsed is not None:
                yield parsed

    def _line(self, value: object) -> Report | RunBegins | Dropped | None:
        if isinstance(value, list):
            return self._report(value)
        if not isinstance(value, dict):
            raise ValueError(value)
        if "names" in value:
            self.names = [str(name) for name in list(value["names"])[:MAX_METRICS]]
            return None
        if "dropped" in value:
            return Dropped(min(max(int(value["dropped"]), 0), MAX_STEP))
        self.names, self.step = [], 0
        return RunBegins(float(value["run"]))

    def _report(self, line: list[object]) -> Report:
        step, at, *numbers = line
        if step is not None:
            self.step = int(_number(step))
        if not 0 <= self.step < MAX_STEP:
            raise ValueError(step)
        values = {
            name: _number(number)
            for name, number in zip(self.names, numbers, strict=False)
            if number is not None and _NAME.fullmatch(name)
        }
        return Report(self.step, _number(at), values)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(value)
    return float(value)
