"""Keeps the stored table of trainings current: what their jobs reported, and how they ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import NotFound
from headway.jobs.metrics.metric_files import JobMetrics, Metric
from headway.services.app_state import AppState
from headway.store.jobs.trainings import FORGOTTEN, TrainingRow

_AT_ONCE = 20  # jobs whose end was missed that are looked up in one round


async def save_trainings(
    state: AppState, cluster: Cluster, jobs: Iterable[JobState], known: Mapping[int, JobMetrics]
) -> None:
    """Stores the newest values of these jobs."""
    await state.store.trainings.save(
        training_row(cluster.name, job, known[job.id]) for job in jobs if known[job.id].metrics
    )


def training_row(cluster: str, job: JobState, known: JobMetrics) -> TrainingRow:
    """Returns a job's row of the table."""
    return TrainingRow(
        cluster=cluster,
        job_id=job.id,
        label=job.label,
        name=job.name,
        user=job.user,
        team=job.account,
        state=job.state,
        submitted_at=job.submit_time,
        reported_at=max(metric.at for metric in known.metrics),
        metrics={metric.name: _values(metric) for metric in known.metrics},
    )


async def changed_states(state: AppState, cluster: Cluster, present: Iterable[JobState]) -> list[JobState]:
    """Returns jobs of the table that wait in the queue again, and those that have left it since they were last seen, as after an
    outage of the server."""
    jobs, found, gone = {job.id: job for job in present}, [], []
    for number, last in (await state.store.trainings.unfinished(cluster.name, 1000)).items():
        if number not in jobs:
            gone.append(number)
        elif jobs[number].state != last:
            found.append(jobs[number])
    for number in gone[:_AT_ONCE]:
        try:
            found.append(await state.readings.job(cluster, number))
        except NotFound:
            await _set_forgotten(state, cluster.name, number)
    return found


async def _set_forgotten(state: AppState, cluster: str, number: int) -> None:
    row = await state.store.trainings.get(cluster, number)
    if row is not None:
        await state.store.trainings.save([replace(row, state=FORGOTTEN)])


def _values(metric: Metric) -> tuple[int, float | None, float | None, float | None]:
    numbers = (metric.value, metric.lowest, metric.highest)
    last, lowest, highest = (value if math.isfinite(value) else None for value in numbers)
    return metric.step, last, lowest, highest
