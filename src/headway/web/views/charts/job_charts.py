"""The charts of a job: its loss, and how it used its GPUs and nodes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from headway.domain.slurm.job_states import WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.base import API_PREFIX
from headway.schemas.jobs import ProgressOut

_OF_GPUS = ("gpu_utilisation", "gpu_memory", "gpu_power", "gpu_temperature")
_OF_NODES = ("job_cpu", "job_memory", "job_network", "job_disk_io")


def loss_chart(job: int, progress: ProgressOut | None, hue: int = 0) -> dict[str, object]:
    """Returns the data for loss_chart.js. `hue` is the number of the line's colour."""
    points = progress.series if progress else []
    return {"job": job, "hue": hue, "steps": [step for step, _ in points], "loss": [loss for _, loss in points]}


@dataclass(frozen=True, slots=True)
class UseCharts:
    """The charts of a job that has started. `simulated`: its GPUs are."""

    address: str
    simulated: bool


def use_charts(cluster: str, job: JobState, *, simulated: bool) -> UseCharts | None:
    """Returns the charts of a job's use of GPUs, CPUs, memory, network and disks; None before it has started."""
    if not job.start_time or job.state in WAITING:
        return None
    series = (*(_OF_GPUS if job.gpus else ()), *_OF_NODES)
    address = f"{API_PREFIX}/clusters/{quote(cluster)}/metrics?job={job.id}&" + "&".join(
        f"series={key}" for key in series
    )
    return UseCharts(address, simulated and job.gpus > 0)
