"""The server's copy of a job's metrics: append-only files of doubles, one folder per job.

    state.json          what the other files contain; renamed into place after they were written
    N.points            (step, Unix seconds, value) of each point of metric N
    N.64, N.1024        summaries of each 64 and 1024 points (jobs.metrics.series), so that charts read little

A killed server has written points that state.json does not count; they are overwritten, because the position in the job's own
file is in state.json too. One process writes at a time: the leader.

A metric's points are split where the training went back to an earlier step. Earlier points from that step on are kept, and
shown no more."""

from __future__ import annotations

import json
import math
import mmap
import os
import shutil
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.jobs.metrics.report_lines import MAX_METRICS, Dropped, LineParser, Report, RunBegins
from headway.jobs.metrics.series import POINT, SUMMARY, Series, merge_summaries, summarise

MAX_POINTS = 50_000_000  # of a job, all metrics together: 1.2 GB
MAX_PARTS = 1000  # how often a metric, or a job, may go back
_DOUBLE = 8
_LEVELS = (1024, 64)  # points of a summary


@dataclass
class Metric:
    """One metric. `parts`: index of the first point and number of the restart, of each part with increasing steps. `lowest` and
    `highest`: of all finite values, also of steps that were repeated later; infinite if there is none."""

    name: str
    points: int = 0
    step: int = -1  # step, time and value of the newest point
    at: float = 0.0
    value: float = math.nan
    parts: list[Sequence[int]] = field(default_factory=list)
    lowest: float = math.inf
    highest: float = -math.inf


@dataclass
class Restart:
    """A process that reported. `step`: its first step, -1 before its first report."""

    began: float
    step: int = -1


@dataclass
class JobMetrics:
    """What is kept of a job. `dropped`: number of reports that are not kept; `why`: the newest reason known here."""

    offset: int = 0  # bytes read of the job's own file
    parser: LineParser = field(default_factory=LineParser)
    metrics: list[Metric] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    dropped: int = 0
    why: str = ""
    path: str = ""  # of the job's file, once it was found
    read_at: float = 0.0  # Unix seconds when the file was last read to its end
    unread_bytes: int = 0  # that the file has beyond `offset`, as last seen

    @property
    def points(self) -> int:
        """Returns the number of points of all metrics."""
        return sum(metric.points for metric in self.metrics)

    def to_json(self) -> str:
        """Returns the text of state.json. A chart of many jobs reads as many of these texts, so they are flat."""
        flat = {
            **vars(self),
            "parser": vars(self.parser),
            "metrics": [[*vars(metric).values()] for metric in self.metrics],
            "restarts": [[restart.began, restart.step] for restart in self.restarts],
        }
        return json.dumps(flat, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> JobMetrics:
        """Parses state.json."""
        flat = json.loads(text)
        flat["parser"] = LineParser(**flat["parser"])
        flat["metrics"] = [Metric(*row) for row in flat["metrics"]]
        flat["restarts"] = [Restart(*row) for row in flat["restarts"]]
        return cls(**flat)


class MetricFiles:
    """The folders of one server: ROOT/CLUSTER/JOB."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, cluster: str, job: int) -> JobMetrics:
        """Returns what is kept of a job; empty if nothing is."""
        try:
            return JobMetrics.from_json((self._folder(cluster, job) / "state.json").read_text())
        except FileNotFoundError:
            return JobMetrics()

    def forget(self, cluster: str, job: int | None = None) -> None:
        """Deletes what is kept of a job, or of all jobs of a cluster."""
        folder = self._folder(cluster, job) if job is not None else self._root / cluster
        shutil.rmtree(folder, ignore_errors=True)

    def append(self, cluster: str, job: int, known: JobMetrics, data: bytes) -> None:
        """Appends whole lines of the job's file, and updates `known`."""
        folder = self._folder(cluster, job)
        folder.mkdir(parents=True, exist_ok=True)
        batch = _Batch(known)
        for line in known.parser.parse(data):
            batch.add(line)
        for number, (begin, points) in batch.points.items():
            _write_points(folder / str(number), begin, points)
        known.offset += len(data)
        written = folder / "state.json.new"
        written.write_text(known.to_json())
        written.rename(folder / "state.json")

    def series(self, cluster: str, job: int, known: JobMetrics, name: str, most: int) -> Series:
        """Returns a metric down-sampled to about `most` points, without those that the training repeated later."""
        number, metric = _find(known, name)
        found = Series()
        folder = self._folder(cluster, job)
        points = _doubles(folder / f"{number}.points", metric.points)
        ranges = _kept_ranges(known, metric, points)
        found.points = sum(end - begin for begin, end in ranges)
        size = next((level for level in _LEVELS if found.points // level >= max(most // 2, 1)), 1)
        merged = max(1, math.ceil(found.points / size / most))
        for begin, end in ranges:
            first, last = -(-begin // size), end // size
            if size == 1:
                found.add(summarise(points[begin * POINT : end * POINT], merged))
            elif first >= last:
                found.add(summarise(points[begin * POINT : end * POINT], size))
            else:
                found.add(summarise(points[begin * POINT : first * size * POINT], size))
                some = _doubles(folder / f"{number}.{size}", last, SUMMARY)[first * SUMMARY :]
                found.add(merge_summaries(some, merged) if merged > 1 else some)
                found.add(summarise(points[last * size * POINT : end * POINT], size))
        return found

    def value_at(self, cluster: str, job: int, known: JobMetrics, name: str, step: int) -> float:
        """Returns the value of a metric's first point at `step` or later, without points that the training repeated later; NaN
        if there is none."""
        number, metric = _find(known, name)
        points = _doubles(self._folder(cluster, job) / f"{number}.points", metric.points)
        for begin, end in _kept_ranges(known, metric, points):
            at = bisect_left(points[0::POINT], step, begin, end)
            if at < end:
                return points[at * POINT + 2]
        return math.nan

    def rows(self, cluster: str, job: int, known: JobMetrics, name: str) -> Iterator[tuple[int, int, float, float]]:
        """Yields (restart, step, Unix seconds, value) of each point, also of those that were repeated later."""
        number, metric = _find(known, name)
        ends = [begin for begin, _ in metric.parts[1:]] + [metric.points]
        points = _doubles(self._folder(cluster, job) / f"{number}.points", metric.points)
        for (begin, restart), end in zip(metric.parts, ends, strict=True):
            for at in range(begin * POINT, min(end * POINT, len(points)), POINT):
                yield restart, int(points[at]), points[at + 1], points[at + 2]

    def _folder(self, cluster: str, job: int) -> Path:
        return self._root / cluster / str(int(job))


class _Batch:
    """New points by number of the metric: (index of the first one, points), and the changes of `known`."""

    def __init__(self, known: JobMetrics) -> None:
        self._known = known
        self._numbers = {metric.name: number for number, metric in enumerate(known.metrics)}
        self._total = known.points
        self.points: dict[int, tuple[int, array[float]]] = {}

    def add(self, line: Report | RunBegins | Dropped) -> None:
        """Adds what a line says."""
        known = self._known
        if isinstance(line, Dropped):
            known.dropped += line.count
            known.why = known.why or "the training reported more than is kept, or its file was damaged; see its log"
        elif isinstance(line, RunBegins):
            if not known.restarts or known.restarts[-1].began != line.began:
                if len(known.restarts) >= MAX_PARTS:
                    self._drop(f"the job was restarted more than {MAX_PARTS} times")
                    return
                known.restarts.append(Restart(line.began))
        else:
            self._report(line)

    def _report(self, line: Report) -> None:
        known = self._known
        if not known.restarts:
            known.restarts.append(Restart(line.at))
        if known.restarts[-1].step < 0:
            known.restarts[-1].step = line.step
        complete = True
        for name, value in line.values.items():
            complete = self._value(name, line.step, line.at, value) and complete
        if not complete:
            known.dropped += 1

    def _value(self, name: str, step: int, at: float, value: float) -> bool:
        """Adds a point. Returns False if a limit forbids it."""
        known = self._known
        if self._total >= MAX_POINTS:
            known.why = f"a job's metrics may have {MAX_POINTS:,} points; report fewer steps"
            return False
        if name not in self._numbers:
            if len(known.metrics) >= MAX_METRICS:
                known.why = f"a job may have {MAX_METRICS:,} metrics"
                return False
            self._numbers[name] = len(known.metrics)
            known.metrics.append(Metric(name))
        number = self._numbers[name]
        metric, restart = known.metrics[number], len(known.restarts) - 1
        new_part = not metric.parts or metric.parts[-1][1] != restart or step < metric.step
        if new_part and len(metric.parts) >= MAX_PARTS:
            known.why = f"{name} went back to an earlier step more than {MAX_PARTS} times; report increasing steps"
            return False
        again = not new_part and step == metric.step  # the last value of a step counts
        begin, points = self.points.setdefault(number, (metric.points - again, array("d")))
        if again and metric.points > begin:
            del points[-POINT:]
        points.extend((step, at, value))
        if new_part:
            metric.parts.append((metric.points, restart))
        if not again:
            metric.points += 1
            self._total += 1
        metric.step, metric.at, metric.value = step, at, value
        if math.isfinite(value):
            metric.lowest, metric.highest = min(metric.lowest, value), max(metric.highest, value)
        return True

    def _drop(self, why: str) -> None:
        self._known.dropped += 1
        self._known.why = why


def _find(known: JobMetrics, name: str) -> tuple[int, Metric]:
    return next((number, metric) for number, metric in enumerate(known.metrics) if metric.name == name)


def _kept_ranges(known: JobMetrics, metric: Metric, points: Sequence[float]) -> list[tuple[int, int]]:
    """Returns (first point, end) of each part, without points whose steps the training repeated later."""
    first_after = [math.inf] * len(known.restarts)  # the lowest first step of all later restarts
    for number in range(len(known.restarts) - 2, -1, -1):
        later = known.restarts[number + 1]
        first_after[number] = min(first_after[number + 1], later.step if later.step >= 0 else math.inf)
    steps, end, cut = points[0::POINT], len(points) // POINT, math.inf
    found = []
    for begin, restart in reversed(metric.parts):
        if begin >= end:
            continue
        until = min(cut, first_after[restart])
        last = end if until == math.inf else bisect_left(steps, until, begin, end)
        if last > begin:
            found.append((begin, last))
        cut, end = min(cut, steps[begin]), begin
    return found[::-1]


def _write_points(path: Path, begin: int, points: array[float]) -> None:
    """Writes points from index `begin` on, and the summaries that they complete."""
    _write_at(path.with_suffix(".points"), begin * POINT, points)
    end = begin + len(points) // POINT
    for size in _LEVELS:
        first, last = begin // size, end // size
        if last <= first:
            continue
        every = _doubles(path.with_suffix(".points"), end)[first * size * POINT : last * size * POINT]
        _write_at(path.with_suffix(f".{size}"), first * SUMMARY, summarise(every, size))


def _write_at(path: Path, index: int, numbers: array[float]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(handle, numbers.tobytes(), index * _DOUBLE)
    finally:
        os.close(handle)


def _doubles(path: Path, count: int, width: int = POINT) -> memoryview[float]:
    """Returns the first `count` entries of a file as a sequence of doubles, read when they are used."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = min(os.fstat(handle).st_size // (_DOUBLE * width), count) * width * _DOUBLE
        return memoryview(mmap.mmap(handle, size, prot=mmap.PROT_READ) if size else b"").cast("d")
    finally:
        os.close(handle)
