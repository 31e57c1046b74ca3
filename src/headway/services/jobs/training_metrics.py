"""The metrics that trainings report: collecting them from the cluster, and reading the server's copy."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice

from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import ENDED, RUNNING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotFound
from headway.jobs.metrics.metric_files import JobMetrics, Metric, MetricFiles
from headway.jobs.metrics.reader import MetricsAsk, MetricsPart
from headway.jobs.metrics.report_lines import MAX_STEP
from headway.schemas.csv_cells import csv_line
from headway.schemas.training_metrics import (
    ReportingRunOut,
    TrainingChartsOut,
    TrainingMetricOut,
    TrainingMetricsOut,
    TrainingSeriesOut,
)
from headway.services.app_state import AppState
from headway.services.jobs.trainings.stored_trainings import save_trainings

PARTS_AT_ONCE = 8  # parts of a job's file that are read before other jobs get their turn
ENDED_AGE_S = 30.0  # seconds between looks for the file of a job that has ended
LOG_AGE_S = 10.0  # seconds for which the metrics in the log of a running job are not read again
_CSV_ROWS = 1000  # rows of one piece of an answer
_CSV_HEAD = ("metric", "run", "step", "unix_seconds", "value")


def metric_files(state: AppState) -> MetricFiles:
    """Returns the server's copy of the metrics."""
    return MetricFiles(state.settings.data / "metrics")


async def collect_metrics(state: AppState, cluster: Cluster, jobs: Iterable[JobState]) -> set[int]:
    """Copies what the files of these jobs have gained, and updates the table of trainings. Returns the jobs whose files have
    more. Only the leader may call this, because one process writes the copy."""
    left = {job.id: job for job in jobs}
    changed = {job.id: job for job in left.values() if job.state not in RUNNING}
    async with state.metric_locks.setdefault(cluster.name, asyncio.Lock()):
        files = metric_files(state)
        for _ in range(PARTS_AT_ONCE):
            if not left:
                break
            known = {number: await asyncio.to_thread(files.read, cluster.name, number) for number in left}
            asked = [MetricsAsk(job, known[job.id].offset, known[job.id].path) for job in left.values()]
            parts = await state.backend.jobs.metric_parts(cluster, asked)
            for number in list(left):
                part = parts.get(number)
                if part is not None and part.data:
                    changed[number] = left[number]
                if part is not None and part.size < known[number].offset:
                    await state.store.trainings.forget(cluster.name, number)
                if part is None or not await asyncio.to_thread(
                    _take, files, cluster.name, number, known[number], part, state.clock()
                ):
                    del left[number]
        newest = {number: await asyncio.to_thread(files.read, cluster.name, number) for number in changed}
        await save_trainings(state, cluster, changed.values(), newest)
    return set(left)


def _take(files: MetricFiles, cluster: str, job: int, known: JobMetrics, part: MetricsPart, now: float) -> bool:
    """Appends a part to the copy. Returns whether the file has more."""
    # Another file: the number of the job was given again, or its user wrote the file again.
    if part.size < known.offset:
        files.forget(cluster, job)
        known = JobMetrics()
        files.append(cluster, job, known, b"")
        return True
    more = part.size > known.offset + len(part.data) and bool(part.data)
    changed = bool(part.data) or known.path != part.path or not more
    known.path, known.unread_bytes = part.path, part.size - known.offset - len(part.data)
    known.read_at = known.read_at if more else now
    if changed:
        files.append(cluster, job, known, part.data)
    return more


async def get_metrics(state: AppState, name: str, job_id: int, task: str = "") -> TrainingMetricsOut:
    """Returns the metrics of a job, or of one task of an array."""
    job, known = await _job_metrics(state, name, job_id, task)
    if not known.metrics and (curves := await _log_metrics(state, name, job)):
        return TrainingMetricsOut(
            job=job.id,
            metrics=[_log_metric(one, curve) for one, curve in curves.items()],
            from_log=True,
        )
    return TrainingMetricsOut(
        job=job.id,
        metrics=[_metric_out(metric) for metric in known.metrics],
        runs=[
            ReportingRunOut(began=one.began, first_step=one.step if one.step >= 0 else None) for one in known.restarts
        ],
        dropped=known.dropped,
        note=known.why,
        unread_bytes=known.unread_bytes,
    )


async def newest_values(state: AppState, name: str, job: JobState) -> list[TrainingMetricOut]:
    """Returns the newest value of each metric that the server has of a job."""
    known = await asyncio.to_thread(metric_files(state).read, name, job.id)
    return [_metric_out(metric) for metric in known.metrics]


async def get_series(
    state: AppState, name: str, job_id: int, names: Sequence[str], points: int, task: str = ""
) -> TrainingChartsOut:
    """Returns these metrics of a job, down-sampled to about `points` points. Raises NotFound for a metric that the job has not
    reported."""
    job, known = await _job_metrics(state, name, job_id, task)
    if not known.metrics and (curves := await _log_metrics(state, name, job)):
        return TrainingChartsOut(job=job.id, series=[_log_series(one, curves[one]) for one in names if one in curves])
    _check_names(name, job, known, names)
    files = metric_files(state)

    def read() -> list[TrainingSeriesOut]:
        found = ((one, files.series(name, job.id, known, one, points)) for one in names)
        return [TrainingSeriesOut(name=one, **vars(series)) for one, series in found]

    return TrainingChartsOut(job=job.id, series=await asyncio.to_thread(read))


async def _log_metrics(state: AppState, name: str, job: JobState) -> dict[str, list[tuple[int, float]]]:
    """Returns the curves in the lines of the job's log by name, for a job that reports no metrics."""
    if not job.start_time:
        return {}
    cluster = await state.clusters.cached(name)
    key, age_s = f"{name}/log_metrics/{job.id}/{job.start_time}", LOG_AGE_S if job.state in RUNNING else ENDED_AGE_S
    try:
        progress = await state.cache.get(key, age_s, lambda: state.backend.jobs.progress_from_files(cluster, job))
    except (HeadwayError, TimeoutError, OSError):
        return {}
    return {one: curve for one, curve in progress.log_metrics.items() if curve} if progress else {}


def _log_metric(name: str, curve: Sequence[tuple[int, float]]) -> TrainingMetricOut:
    step, value = curve[-1]
    return TrainingMetricOut(name=name, points=len(curve), step=step, value=value, text=f"{value:.6g}", at=0)


def _log_series(name: str, curve: Sequence[tuple[int, float]]) -> TrainingSeriesOut:
    values: list[float | None] = [value for _, value in curve]
    steps = [step for step, _ in curve]
    return TrainingSeriesOut(
        name=name, points=len(curve), steps=steps, times=[0.0] * len(curve), values=values, lows=values, highs=values
    )


async def open_csv(state: AppState, name: str, job_id: int, names: Sequence[str], task: str = "") -> AsyncIterator[str]:
    """Returns all points of these metrics (of all, if none is named) as CSV, also those that the training repeated."""
    job, known = await _job_metrics(state, name, job_id, task)
    _check_names(name, job, known, names)
    files = metric_files(state)

    async def pieces() -> AsyncIterator[str]:
        yield csv_line(_CSV_HEAD)
        for one in names or [metric.name for metric in known.metrics]:
            rows = files.rows(name, job.id, known, one)
            while piece := await asyncio.to_thread(_csv_piece, one, rows):
                yield piece

    return pieces()


def _csv_piece(metric: str, rows: Iterable[tuple[int, int, float, float]]) -> str:
    return "".join(
        csv_line((metric, run, step, f"{at:.3f}", value)) for run, step, at, value in islice(rows, _CSV_ROWS)
    )


async def _job_metrics(state: AppState, name: str, job_id: int, task: str) -> tuple[JobState, JobMetrics]:
    """Returns the job and the copy of its metrics. The file of a job that ended while no server read it is read now."""
    _, cluster = await state.clusters.get(name)
    job = await state.readings.task(cluster, job_id, task) if task else await state.readings.job(cluster, job_id)
    known = await asyncio.to_thread(metric_files(state).read, name, job.id)
    if job.state in ENDED and job.start_time and known.read_at <= job.end_time and state.store.server_locks.leads:

        async def collect() -> set[int]:
            return await collect_metrics(state, cluster, [job])

        with contextlib.suppress(HeadwayError, TimeoutError, OSError):
            await state.cache.get(f"{name}/metrics/{job.id}/{job.end_time}", ENDED_AGE_S, collect)
            known = await asyncio.to_thread(metric_files(state).read, name, job.id)
    return job, known


def _check_names(cluster: str, job: JobState, known: JobMetrics, names: Sequence[str]) -> None:
    there = {metric.name for metric in known.metrics}
    if missing := [name for name in names if name not in there]:
        some = ", ".join(sorted(there)[:20]) or "none yet"
        raise NotFound(
            f"job {job.id} on {cluster} has not reported {', '.join(missing[:5])}; it reports: {some}",
            hint=f"headway job metrics {cluster} {job.id}",
        )


def _metric_out(metric: Metric) -> TrainingMetricOut:
    value = metric.value
    whole = value.is_integer() and abs(value) < MAX_STEP  # tokens are not shown as 2.18317e+06
    return TrainingMetricOut(
        name=metric.name,
        points=metric.points,
        step=metric.step,
        value=value if math.isfinite(value) else None,
        text=f"{value:.0f}" if whole else f"{value:.6g}",
        at=metric.at,
    )
