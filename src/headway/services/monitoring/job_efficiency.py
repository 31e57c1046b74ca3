"""The verdict on how well a job used its resources, from the same series as its charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.cluster.monitoring.metric_queries import MEAN_LINE
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError
from headway.jobs.explain.efficiency import MIN_RAN_S, Finding, Use, assess
from headway.schemas.metrics import ChartLineOut, ChartOut
from headway.services.app_state import AppState
from headway.services.monitoring.metrics import MAX_RANGE_S, MetricsQuery, get_metrics

_SERIES = ("job_cpu", "job_memory")
_GPU_SERIES = ("gpu_utilisation", "gpu_memory")
_AGE_S = 60.0


async def get_efficiency(state: AppState, name: str, job: JobState) -> tuple[Finding, ...]:
    """Returns the findings about the last run of a job; () if it has not run for long enough, or nothing was measured."""
    running = job.state in RUNNING
    end = state.clock() if running else job.end_time
    ran_s = end - job.start_time
    if job.state in WAITING or not job.start_time or ran_s < MIN_RAN_S:
        return ()

    async def read() -> tuple[Finding, ...]:
        series = (*_SERIES, *(_GPU_SERIES if job.gpus else ()))
        start = max(job.start_time, end - MAX_RANGE_S)
        query = MetricsQuery(series, job=job.id, start=start, end=end, points=240)
        try:
            found = await get_metrics(state, name, query)
        except HeadwayError:  # without Prometheus there is no verdict
            return ()
        return assess(_use(job, ran_s, {chart.key: chart for chart in found.charts}))

    return await state.cache.get(f"{name}/efficiency/{job.id}/{job.state}", _AGE_S, read)


def _use(job: JobState, ran_s: float, charts: dict[str, ChartOut]) -> Use:
    nodes = max(1, len(job.nodes))
    gpu_memory, memory = charts.get("gpu_memory"), charts["job_memory"]
    limit = gpu_memory.limits[0].value if gpu_memory and gpu_memory.limits else 0
    most_gpu_memory = _highest(gpu_memory) if gpu_memory else None
    return Use(
        ran_s=ran_s,
        completed=job.state == "COMPLETED",
        gpus=job.gpus,
        gpu_percent=_mean(charts["gpu_utilisation"]) if job.gpus else None,
        gpu_memory_share=most_gpu_memory / limit if limit and most_gpu_memory is not None else None,
        cpus=job.cpus,
        cpus_busy=_sum_of_means(charts["job_cpu"], nodes),
        nodes=nodes,
        memory_mib=job.memory_mib / nodes,
        memory_used_mib=_highest(memory),
        limit_s=job.time_limit_s,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean_lines(chart: ChartOut) -> Sequence[ChartLineOut]:
    """Returns the line of mean values if it replaces those of single GPUs or nodes, else all lines."""
    return [line for line in chart.lines if line.label == MEAN_LINE] or chart.lines


def _mean(chart: ChartOut) -> float | None:
    every = [value for line in _mean_lines(chart) for value in _known(line.values)]
    return sum(every) / len(every) if every else None


def _sum_of_means(chart: ChartOut, nodes: int) -> float | None:
    lines = _mean_lines(chart)
    means = [sum(known) / len(known) for line in lines if (known := _known(line.values))]
    if not means:
        return None
    return means[0] * nodes if lines[0].label == MEAN_LINE else sum(means)


def _highest(chart: ChartOut) -> float | None:
    return max((value for line in chart.lines for value in _known(line.values)), default=None)
