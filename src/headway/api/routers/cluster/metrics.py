"""Time series of a node, a job or the cluster. The error kind `unreachable` means that Prometheus does not answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.path_numbers import MAX_PATH_NUMBER
from headway.cluster.monitoring.metric_queries import SERIES
from headway.schemas.base import API_PREFIX
from headway.schemas.metrics import MetricsOut
from headway.services.monitoring import metrics
from headway.services.monitoring.metrics import MetricsQuery

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["metrics"])
MAX_POINTS = 1000
MAX_SERIES = 20
_MAX_TIME = 1e11  # unix seconds


@router.get("/metrics")
async def get_metrics(
    name: str,
    state: State,
    _: Anyone,
    series: Annotated[list[str], Query(max_length=MAX_SERIES, description=", ".join(SERIES))],
    node: Annotated[str, Query(max_length=64)] = "",
    job: Annotated[
        int, Query(ge=0, le=MAX_PATH_NUMBER, description="charts of this job, by default over its whole run")
    ] = 0,
    start: Annotated[
        float, Query(ge=-_MAX_TIME, le=_MAX_TIME, description="unix seconds; negative: before the end")
    ] = 0,
    end: Annotated[float, Query(ge=0, le=_MAX_TIME, description="unix seconds; 0: now")] = 0,
    points: Annotated[int, Query(ge=2, le=MAX_POINTS)] = 240,
) -> MetricsOut:
    """Returns time series of one node, of one job (one line per GPU), or of the cluster if neither is given. The
    default period is the last hour."""
    return await metrics.get_metrics(state, name, MetricsQuery(series, node, job, start, end, points))
