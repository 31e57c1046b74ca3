"""Charts of trainings' metrics: 1,000 jobs with 100 metrics of 100,000 points.

    python bench server/training_metrics [--jobs 1000] [--metrics 100] [--points 100000]

Copies the reports of one job with 10 metrics as the server does. All jobs then get as many as wanted: their points are hard links
to these (240 GB otherwise), the summaries of the metric that is charted for all jobs are copies. Measures a chart of all metrics
of one job, and of one metric of all jobs, each with models and JSON; the second one also from disk."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headway.jobs.metrics.metric_files import JobMetrics, MetricFiles
from headway.schemas.training_metrics import TrainingChartsOut, TrainingSeriesOut

PIECE = 1000  # reports of one append, as of one part of a file
COPIED = 10  # metrics whose reports are copied


def reports(metrics: int, points: int) -> Iterator[bytes]:
    """Yields pieces of a job's file, as headway_train writes it."""
    chance = random.Random(7)
    yield json.dumps({"run": 1000.0}).encode() + b"\n" + json.dumps({"names": names(metrics)}).encode() + b"\n"
    for begin in range(0, points, PIECE):
        lines = [
            json.dumps([step, 1000.0 + step / 5, *(math.exp(-step / 20_000) + chance.random() for _ in range(metrics))])
            for step in range(begin, min(begin + PIECE, points))
        ]
        yield "\n".join(lines).encode() + b"\n"


def names(metrics: int) -> list[str]:
    return [f"train/metric_{number}" for number in range(metrics)]


def copy_job(first: Path, job: Path, known: JobMetrics) -> None:
    """Gives another job the metrics of the first one, under as many names as `known` has."""
    job.mkdir(parents=True, exist_ok=True)
    for number in range(len(known.metrics)):
        for ending in ("points", "64", "1024"):
            source, target = first / f"{number % COPIED}.{ending}", job / f"{number}.{ending}"
            if number == 0 and ending != "points":
                shutil.copyfile(source, target)
            elif not target.exists():
                os.link(source, target)
    (job / "state.json").write_text(known.to_json())


def drop_from_memory(root: Path) -> None:
    os.sync()
    for path in root.glob("*/0.*"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def chart(files: MetricFiles, wanted: Sequence[tuple[int, str]], points: int) -> tuple[float, float, int, int]:
    """Returns (seconds, seconds of processor time, bytes of JSON, points in it)."""
    began, worked = time.perf_counter(), time.process_time()
    found = []
    known = {job: files.read("lab", job) for job in dict.fromkeys(job for job, _ in wanted)}
    for job, name in wanted:
        found.append(TrainingSeriesOut(name=name, **vars(files.series("lab", job, known[job], name, points))))
    size = len(TrainingChartsOut(job=wanted[0][0], series=found).model_dump_json())
    return time.perf_counter() - began, time.process_time() - worked, size, sum(len(one.steps) for one in found)


def resident_mib() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--metrics", type=int, default=100)
    parser.add_argument("--points", type=int, default=100_000)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="headway-metrics-"))
    try:
        files, spent = MetricFiles(root), 0.0
        known = files.read("lab", 1)
        for piece in reports(COPIED, options.points):
            began = time.process_time()
            files.append("lab", 1, known, piece)
            spent += time.process_time() - began
        total = COPIED * options.points
        print(f"copied {total:,} points of a job: {spent:.1f} s of processor time, {total / spent:,.0f} points/s")
        known.metrics = [
            replace(known.metrics[number % COPIED], name=name) for number, name in enumerate(names(options.metrics))
        ]
        first = root / "lab/1"
        for job in range(2, options.jobs + 1):
            copy_job(first, root / f"lab/{job}", known)
        for number in range(COPIED, options.metrics):
            for ending in ("points", "64", "1024"):
                os.link(first / f"{number % COPIED}.{ending}", first / f"{number}.{ending}")
        (first / "state.json").write_text(known.to_json())
        every_point = options.jobs * options.metrics * options.points
        print(f"{options.jobs:,} jobs, {every_point:,} points; load average {os.getloadavg()[0]:.0f}")
        before = resident_mib()
        every = [(1, name) for name in names(options.metrics)]
        one = [(job, names(1)[0]) for job in range(1, options.jobs + 1)]
        for title, wanted, points in (
            (f"all {options.metrics} metrics of one job, 500 points each", every, 500),
            (f"one metric of all {options.jobs:,} jobs, 100 points each", one, 100),
        ):
            took = min(chart(files, wanted, points) for _ in range(3))
            print(
                f"{title}: {took[0]:.2f} s, {took[1]:.2f} s of processor time, {took[3]:,} points, {took[2] / 1e6:.1f} MB"
            )
        drop_from_memory(root / "lab")
        seconds, worked, *_ = chart(files, one, 100)
        print(f"the second one, read from disk: {seconds:.2f} s, {worked:.2f} s of processor time")
        print(f"memory: {resident_mib() - before:.0f} MiB more than before the charts")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
