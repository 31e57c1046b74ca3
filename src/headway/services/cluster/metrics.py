"""Time series from Prometheus on the cluster's head: a fixed set of named series of a node, a job or the cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.cluster.monitoring import metric_queries as known
from headway.cluster.monitoring.metric_queries import MOST_LINES, SERIES, Over
from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import RUNNING
from headway.errors import HeadwayError, NotFound, Refused
from headway.render.monitoring.prometheus import SCRAPE_S
from headway.schemas.metrics import ChartLineOut, ChartOut, MetricsOut
from headway.services.app_state import AppState

HOUR_S = 3600.0
MAX_RANGE_S = 31 * 24 * HOUR_S  # Prometheus keeps a month
_USE = known.MetricQuery("use", "max by (node, gpu) (DCGM_FI_DEV_GPU_UTIL)")


@dataclass(frozen=True, slots=True)
class MetricsQuery:
    """Names of series, what they are about, and the period. `node` or `job` selects one; neither means the whole
    cluster."""

    series: Sequence[str]
    node: str = ""
    job: int = 0
    start: float = 0  # unix seconds; negative: before the end; 0: the job's start, or an hour before the end
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
    gpus, begun, ended = await _job_lifetime(state, cluster, job) if job else (0, 0.0, 0.0)
    now = state.clock()
    until = min(end or ended or now, now)
    since = until + start if start < 0 else start or begun or until - HOUR_S
    if not until - MAX_RANGE_S <= since < until:
        raise Refused("start must be before end, by at most 31 days", hint="times are unix seconds")
    step_s = max(SCRAPE_S, math.ceil((until - since) / points))
    since, until = since // step_s * step_s, math.ceil(until / step_s) * step_s
    queries = known.queries(keys, over, str(job) if job else node, step_s, gpus)
    rows = await state.backend.monitoring.query_metrics(cluster, queries, since, until, step_s)
    times = [since + i * step_s for i in range(int((until - since) / step_s) + 1)]
    charts = [_chart(key, [row for row in rows if row.key == key], times, over) for key in keys]
    return MetricsOut(
        cluster=name,
        start=since,
        end=until,
        step_s=step_s,
        simulated=cluster.simulated_gpus,
        times=times,
        charts=charts,
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


async def _job_lifetime(state: AppState, cluster: Cluster, number: int) -> tuple[int, float, float]:
    """Returns (GPUs, start, end) of a job in unix seconds; end is 0 while it runs. Raises Refused before its start."""
    job = await state.readings.job(cluster, number)
    if not job.start_time or job.start_time > state.clock():
        raise Refused(f"job {number} has not started", hint="its charts begin when it starts")
    over = job.state not in RUNNING and job.end_time
    return job.gpus, float(job.start_time), float(job.end_time) if over else 0.0


def _chart(key: str, rows: Sequence[known.MetricRow], times: Sequence[float], over: Over) -> ChartOut:
    series = SERIES[key]
    lines = [_line(row, times, over) for row in rows]
    lines.sort(key=lambda line: (line.node, -1 if line.gpu is None else line.gpu))
    return ChartOut(
        key=key,
        title=series.title,
        unit=series.unit,
        lines=lines[:MOST_LINES],
        left_out=max(0, len(lines) - MOST_LINES),
    )


def _line(row: known.MetricRow, times: Sequence[float], over: Over) -> ChartLineOut:
    values = {round(at): value for at, value in row.values}
    gpu = row.labels.get("gpu", "")
    node = row.labels.get("node", "")
    found = [values.get(round(at)) for at in times]
    return ChartLineOut(
        label=row.line or (f"GPU {gpu}" if over == "node" else f"{node} GPU {gpu}"),
        node=node,
        gpu=int(gpu) if gpu.isascii() and gpu.isdigit() else None,
        values=[None if value is None or not math.isfinite(value) else round(value, 3) for value in found],
    )
