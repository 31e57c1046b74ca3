"""The charts of a job: its loss, and what its GPUs did. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from headway.domain.slurm.job_states import WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.base import API_PREFIX
from headway.schemas.jobs import JobRunsOut, ProgressOut

_GPU_SERIES = ("gpu_utilisation", "gpu_memory", "gpu_power", "gpu_temperature")


def loss_chart(job: int, progress: ProgressOut | None, hue: int = 0) -> dict[str, object]:
    """Returns the data for loss_chart.js. `hue` is the number of the line's colour."""
    points = progress.series if progress else []
    return {"job": job, "hue": hue, "steps": [step for step, _ in points], "loss": [loss for _, loss in points]}


@dataclass(frozen=True, slots=True)
class GpuCharts:
    """The GPU charts of a job that has started. `marks`: moments to mark in the charts."""

    address: str
    simulated: bool
    marks: tuple[tuple[int, str], ...]


def gpu_charts(cluster: str, job: JobState, runs: JobRunsOut, *, simulated: bool) -> GpuCharts | None:
    """Returns the GPU charts; None before the job has started or if it has no GPUs."""
    if not job.gpus or not job.start_time or job.state in WAITING:
        return None
    address = f"{API_PREFIX}/clusters/{quote(cluster)}/metrics?job={job.id}&" + "&".join(
        f"series={gpu}" for gpu in _GPU_SERIES
    )
    again = [
        (run.start_time, f"run {number}") for number, run in enumerate(runs.runs, 1) if run.start_time and number > 1
    ]
    return GpuCharts(address, simulated, tuple(again))
