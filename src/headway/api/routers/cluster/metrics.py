"""Figures over time, from the Prometheus of the cluster's head: a fixed set of named series of a node, a job or the whole
cluster. A cluster whose Prometheus does not answer is an error of kind `unreachable`, which says so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from headway.api.auth.dependencies import MAX_PATH_NUMBER, Anyone, State
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError, NotFound, Refused
from headway.render.monitoring import metric_queries as known
from headway.render.monitoring.metric_queries import MOST_LINES, SCRAPE_S, SERIES, Over
from headway.schemas.metrics import ChartOut, LineOut, MetricsOut
from headway.services.context import AppState

router = APIRouter(prefix="/clusters/{name}", tags=["metrics"])
HOUR_S = 3600.0
MOST_S = 31 * 24 * HOUR_S  # Prometheus keeps a month
MOST_POINTS = 1000
MOST_SERIES = 12
_FAR = 1e11
_USE = known.Query("use", "max by (node, gpu) (DCGM_FI_DEV_GPU_UTIL)")


@router.get("/metrics")
async def metrics(
    name: str,
    state: State,
    _: Anyone,
    series: Annotated[list[str], Query(max_length=MOST_SERIES, description=", ".join(SERIES))],
    node: Annotated[str, Query(max_length=64)] = "",
    job: Annotated[int, Query(ge=0, le=MAX_PATH_NUMBER, description="its charts over its life, unless told when")] = 0,
    start: Annotated[float, Query(ge=-_FAR, le=_FAR, description="unix seconds; negative: before the end")] = 0,
    end: Annotated[float, Query(ge=0, le=_FAR, description="unix seconds; 0: now")] = 0,
    points: Annotated[int, Query(ge=2, le=MOST_POINTS)] = 240,
) -> MetricsOut:
    """Of one node, of one job (a line a GPU), or without either of the cluster. The last hour unless told otherwise."""
    cluster = (await state.cluster(name))[1]
    over: Over = "job" if job else "node" if node else "cluster"
    keys = list(dict.fromkeys(series))
    _check(cluster, keys, over, node)
    gpus, begun, ended = await _life(state, cluster, job) if job else (0, 0.0, 0.0)
    now = state.clock()
    until = min(end or ended or now, now)
    since = until + start if start < 0 else start or begun or until - HOUR_S
    if not until - MOST_S <= since < until:
        raise Refused("start lies before end, and at most 31 days before", hint="times are unix seconds")
    step_s = max(SCRAPE_S, math.ceil((until - since) / points))
    since, until = since // step_s * step_s, math.ceil(until / step_s) * step_s
    asked = known.queries(keys, over, str(job) if job else node, step_s, gpus)
    rows = await state.work.metrics(cluster, asked, since, until, step_s)
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


async def gpu_use(state: AppState, cluster: Cluster) -> tuple[dict[tuple[str, int], int], str]:
    """What every GPU does now: ((node, GPU) -> percent, why there is none)."""
    now = state.clock()
    try:
        rows = await state.work.metrics(cluster, [_USE], now, now, SCRAPE_S)
    except HeadwayError as error:
        return {}, error.message.splitlines()[0]
    found = {
        (row.labels.get("node", ""), int(row.labels["gpu"])): round(row.values[-1][1])
        for row in rows
        if row.values and math.isfinite(row.values[-1][1]) and row.labels.get("gpu", "").isdigit()
    }
    return found, "" if found else "Prometheus has no figures yet"


def _check(cluster: Cluster, keys: Iterable[str], over: Over, node: str) -> None:
    for key in keys:
        if key not in SERIES or over not in SERIES[key].over:
            there = ", ".join(one.key for one in SERIES.values() if over in one.over)
            raise NotFound(f"there is no series {key!r} of a {over}", hint=f"there is {there}")
    if over == "node" and node not in cluster.slot_names:
        raise NotFound(f"{cluster.name} has no node {node}", hint=f"headway nodes {cluster.name}")


async def _life(state: AppState, cluster: Cluster, number: int) -> tuple[int, float, float]:
    """(GPUs, start, end) of a job, as far as known."""
    job = await state.job(cluster, number)
    if not job.start_time or job.start_time > state.clock():
        raise Refused(f"job {number} has not started", hint="its charts begin with it")
    over = job.state not in {"RUNNING", "COMPLETING", "SUSPENDED"} and job.end_time
    return job.gpus, float(job.start_time), float(job.end_time) if over else 0.0


def _chart(key: str, rows: Sequence[known.Row], times: Sequence[float], over: Over) -> ChartOut:
    one = SERIES[key]
    lines = [_line(row, times, over) for row in rows]
    lines.sort(key=lambda line: (line.node, -1 if line.gpu is None else line.gpu))
    return ChartOut(
        key=key, title=one.title, unit=one.unit, lines=lines[:MOST_LINES], left_out=max(0, len(lines) - MOST_LINES)
    )


def _line(row: known.Row, times: Sequence[float], over: Over) -> LineOut:
    values = {round(at): value for at, value in row.values}
    gpu = row.labels.get("gpu", "")
    node = row.labels.get("node", "")
    found = [values.get(round(at)) for at in times]
    return LineOut(
        label=row.line or (f"GPU {gpu}" if over == "node" else f"{node} GPU {gpu}"),
        node=node,
        gpu=int(gpu) if gpu.isascii() and gpu.isdigit() else None,
        values=[None if value is None or not math.isfinite(value) else round(value, 3) for value in found],
    )
