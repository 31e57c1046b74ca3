"""Time series from Prometheus on the cluster's head: a fixed set of named series of a node, a job or the cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.cluster.monitoring import metric_queries as known
from headway.cluster.monitoring.metric_queries import MOST_LINES, SERIES, Over
from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import RUNNING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotFound, Refused
from headway.render.monitoring.prometheus import SCRAPE_S
from headway.schemas.metrics import ChartLimitOut, ChartLineOut, ChartOut, MetricsOut
from headway.services.app_state import AppState
from headway.services.monitoring.chart_marks import Period, cluster_marks, job_marks, runs_of_job

HOUR_S = 3600.0
MAX_RANGE_S = 31 * 24 * HOUR_S  # Prometheus keeps a month
_DISK_WARNING_PERCENT = 97.0  # from which on the check `disk` of the agent warns
_USE = known.MetricQuery("use", "max by (node, gpu) (DCGM_FI_DEV_GPU_UTIL)")


@dataclass(frozen=True, slots=True)
class MetricsQuery:
    """Names of series, what they are about, and the period. `node` or `job` selects one; neither means the whole
    cluster."""

    series: Sequence[str]
    node: str = ""
    job: int = 0
    start: float = (
        0  # unix seconds; negative: before the end; 0: the job's first start in MAX_RANGE_S, or an hour before
    )
    end: float = 0  # unix seconds; 0: now, or the job's end
    points: int = 240  # at most


async def get_metrics(state: AppState, name: str, query: MetricsQuery) -> MetricsOut:
    """Returns the series, one line per GPU or node. Raises Refused for invalid times, NotFound, and Unreachable without
    Prometheus."""
    series, node, job = query.series, query.node, query.job
    start, end, points = query.start, query.end, query.points
    cluster = (await state.clusters.get(name))[1]
    over: Over = "job" if job else "node" if node else "cluster"
    keys = list(dict.fromkeys(series))
    _check_series(cluster, keys, over, node)
    found = await _started_job(state, cluster, job) if job else None
    begun, ended = await _lifetime(state, cluster, found) if found else (0.0, 0.0)
    now = state.clock()
    until = min(end or ended or now, now)
    since = until + start if start < 0 else start or (max(begun, until - MAX_RANGE_S) if begun else until - HOUR_S)
    if not until - MAX_RANGE_S <= since < until:
        raise Refused("start must be before end, by at most 31 days", hint="times are unix seconds")
    step_s = max(SCRAPE_S, math.ceil((until - since) / points))
    since, until = since // step_s * step_s, math.ceil(until / step_s) * step_s
    sizes = (found.gpus, len(found.nodes)) if found else (0, 0)
    queries = known.queries(keys, over, str(job) if job else node, step_s, *sizes)
    rows = await state.backend.monitoring.query_metrics(cluster, queries, since, until, step_s)
    times = [since + i * step_s for i in range(int((until - since) / step_s) + 1)]
    limits = _limits(cluster, node, found)
    charts = [_chart(key, [row for row in rows if row.key == key], times, over, limits.get(key)) for key in keys]
    period = Period(since, until)
    marks = await job_marks(state, cluster, found, period) if found else await cluster_marks(state, name, period, node)
    return MetricsOut(
        cluster=name,
        start=since,
        end=until,
        step_s=step_s,
        simulated=cluster.simulated_gpus,
        times=times,
        charts=charts,
        marks=marks,
    )


async def get_gpu_utilisation(state: AppState, cluster: Cluster) -> tuple[dict[tuple[str, int], int], str]:
    """Returns ({(node, GPU): percent} now, the reason if there are no figures). One query per scrape of Prometheus is
    shared by all."""
    return await state.cache.get(f"{cluster.name}/use", SCRAPE_S, lambda: _read_gpu_utilisation(state, cluster))


async def _read_gpu_utilisation(state: AppState, cluster: Cluster) -> tuple[dict[tuple[str, int], int], str]:
    now = state.clock()
    try:
        rows = await state.backend.monitoring.query_metrics(cluster, [_USE], now, now, SCRAPE_S)
    except HeadwayError as error:
        return {}, error.first_line
    found = {
        (row.labels.get("node", ""), int(row.labels["gpu"])): round(row.values[-1][1])
        for row in rows
        if row.values and math.isfinite(row.values[-1][1]) and row.labels.get("gpu", "").isdigit()
    }
    return found, "" if found else "Prometheus has no figures yet"


def _check_series(cluster: Cluster, keys: Iterable[str], over: Over, node: str) -> None:
    for key in keys:
        if key not in SERIES or over not in SERIES[key].over:
            there = ", ".join(series.key for series in SERIES.values() if over in series.over)
            raise NotFound(f"there is no series {key!r} of a {over}", hint=f"there is {there}")
    if over == "node" and node not in cluster.slot_names:
        raise NotFound(f"{cluster.name} has no node {node}", hint=f"headway nodes {cluster.name}")


async def _started_job(state: AppState, cluster: Cluster, number: int) -> JobState:
    """Returns the job. Raises Refused before its start."""
    job = await state.readings.job(cluster, number)
    if not job.start_time or job.start_time > state.clock():
        raise Refused(f"job {number} has not started", hint="its charts begin when it starts")
    return job


async def _lifetime(state: AppState, cluster: Cluster, job: JobState) -> tuple[float, float]:
    """Returns when the job's first run started and when it ended, in unix seconds; the end is 0 while it runs."""
    runs = (await runs_of_job(state, cluster, job)).runs if job.restarts else []
    begun = min([job.start_time, *(run.start_time for run in runs if run.start_time)])
    return float(begun), float(job.end_time) if job.state not in RUNNING else 0.0


def _limits(cluster: Cluster, node: str, job: JobState | None) -> dict[str, ChartLimitOut]:
    """Returns the limit of each series that has one: what the machine has, or what the job has requested for each node."""
    names = {node} if node else set(job.nodes) if job else set()
    groups = {slot.group for slot in cluster.slots if slot.name in names}
    plans = {group.plan.name: group.plan for group in cluster.groups if group.name in groups}
    limits = {"disk_space": ChartLimitOut(label="warning", value=_DISK_WARNING_PERCENT)}
    if len(plans) == 1:
        [plan] = plans.values()
        limits["gpu_memory"] = ChartLimitOut(label="of the GPU", value=plan.gpu_memory_mib)
    if job and job.nodes and job.cpus and not job.cpus % len(job.nodes):
        limits["job_cpu"] = ChartLimitOut(label="allocated", value=job.cpus / len(job.nodes))
    if job and job.nodes and job.memory_mib:
        limits["job_memory"] = ChartLimitOut(label="allocated", value=job.memory_mib / len(job.nodes))
    return limits


def _chart(
    key: str, rows: Sequence[known.MetricRow], times: Sequence[float], over: Over, limit: ChartLimitOut | None
) -> ChartOut:
    series = SERIES[key]
    lines = [_line(row, times, over) for row in rows]
    order = {name: place for place, (name, _) in enumerate(series.lines)}
    lines.sort(key=lambda line: (order.get(line.label, 0), line.node, -1 if line.gpu is None else line.gpu))
    return ChartOut(
        key=key,
        title=series.title,
        unit=series.unit,
        lines=lines[:MOST_LINES],
        left_out=max(0, len(lines) - MOST_LINES),
        limits=[limit] if limit else [],
    )


def _line(row: known.MetricRow, times: Sequence[float], over: Over) -> ChartLineOut:
    values = {round(at): value for at, value in row.values}
    gpu = row.labels.get("gpu", "")
    node = row.labels.get("node", "")
    found = [values.get(round(at)) for at in times]
    return ChartLineOut(
        label=row.line or row.labels.get("line") or _label(row, over),
        node=node,
        gpu=int(gpu) if gpu.isascii() and gpu.isdigit() else None,
        values=[None if value is None or not math.isfinite(value) else _short(value) for value in found],
    )


def _short(value: float) -> float:
    """Returns the value with four significant digits, or as a whole number: more can't be seen in a chart."""
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")


def _label(row: known.MetricRow, over: Over) -> str:
    if label := SERIES[row.key].line_label:
        return row.labels.get(label, "")
    gpu = row.labels.get("gpu", "")
    return f"GPU {gpu}" if over == "node" else f"{row.labels.get('node', '')} GPU {gpu}"
