"""The metrics that a training reports."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.array_task import ArrayTask
from headway.api.http.path_numbers import PathNumber
from headway.schemas.base import API_PREFIX
from headway.schemas.training_metrics import MAX_SERIES, MAX_SERIES_POINTS, TrainingChartsOut, TrainingMetricsOut
from headway.services.jobs import training_metrics

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/jobs/{{job_id}}/metrics", tags=["jobs"])
_CSV: dict[int | str, dict[str, Any]] = {
    200: {"description": "All points", "content": {"text/csv": {"schema": {"type": "string"}}}}
}
_Name = Annotated[str, Query(max_length=128)]


@router.get("")
async def list_training_metrics(
    name: str, job_id: PathNumber, state: State, _: Anyone, task: ArrayTask = ""
) -> TrainingMetricsOut:
    """Returns the metrics that a job has reported, with their newest values."""
    return await training_metrics.get_metrics(state, name, job_id, task)


@router.get("/series")
async def get_training_series(
    name: str,
    job_id: PathNumber,
    state: State,
    _: Anyone,
    metric: Annotated[list[_Name], Query(min_length=1, max_length=MAX_SERIES, description="names of metrics")],
    points: Annotated[int, Query(ge=2, le=MAX_SERIES_POINTS, description="about so many points of each metric")] = 500,
    task: ArrayTask = "",
) -> TrainingChartsOut:
    """Returns metrics of a job for a chart, down-sampled to about `points` points each. Lowest and highest values are kept."""
    return await training_metrics.get_series(state, name, job_id, metric, points, task)


@router.get("/csv", response_class=StreamingResponse, responses=_CSV)
async def download_training_metrics(
    name: str,
    job_id: PathNumber,
    state: State,
    _: Anyone,
    metric: Annotated[
        list[_Name], Query(max_length=MAX_SERIES, description="names of metrics; all if none is given")
    ] = [],  # noqa: B006
    task: ArrayTask = "",
) -> StreamingResponse:
    """Returns all points of metrics as CSV: one line for each, also those of steps that were repeated after a restart."""
    pieces = await training_metrics.open_csv(state, name, job_id, metric, task)
    headers = {"content-disposition": f'attachment; filename="job-{job_id}-metrics.csv"'}
    return StreamingResponse(pieces, media_type="text/csv; charset=utf-8", headers=headers)
