"""The table of trainings: jobs that reported metrics."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import StreamingResponse

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.pagination import ANY, Cursor, States, Text, Words
from headway.api.http.path_numbers import PathNumber
from headway.schemas.base import API_PREFIX
from headway.schemas.page_size import DEFAULT_ROWS, MAX_ROWS
from headway.schemas.training_metrics import MAX_SERIES
from headway.schemas.trainings import (
    MAX_CONDITIONS,
    TrainingComparisonOut,
    TrainingGroupsOut,
    TrainingNoteIn,
    TrainingOut,
    TrainingsOut,
)
from headway.services.jobs.trainings import training_list
from headway.services.jobs.trainings.training_comparison import compare_trainings
from headway.services.jobs.trainings.training_query import parse_conditions, parse_metric_key, parse_sort
from headway.store.jobs.trainings import TrainingQuery

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/trainings", tags=["jobs"])
_CSV: dict[int | str, dict[str, Any]] = {
    200: {"description": "All trainings that match", "content": {"text/csv": {"schema": {"type": "string"}}}}
}
_Value = Annotated[str, Query(max_length=140)]


def _query(
    user: Words = ANY,
    team: Words = ANY,
    state: States = ANY,
    tag: Annotated[frozenset[str], Query(max_length=50, description="all of these")] = ANY,
    q: Text = "",
    where: Annotated[
        list[_Value], Query(max_length=MAX_CONDITIONS, description="conditions such as loss<2 or accuracy:highest>=0.9")
    ] = [],  # noqa: B006
    sort: Annotated[str, Query(max_length=140, description="metric, or -metric for the highest first")] = "",
) -> TrainingQuery:
    key, descending = parse_sort(sort)
    return TrainingQuery(user, team, state, tag, q, parse_conditions(where), key, descending)


_Query = Annotated[TrainingQuery, Depends(_query)]


@router.get("")
async def list_trainings(
    name: str,
    state: State,
    who: Anyone,
    query: _Query,
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = DEFAULT_ROWS,
) -> TrainingsOut:
    """Returns jobs that reported metrics, the latest first, with the newest value and the range of each metric."""
    return await training_list.list_trainings(state, who, name, query, cursor=cursor, limit=limit)


@router.get("/groups")
async def group_trainings(
    name: str,
    state: State,
    who: Anyone,
    query: _Query,
    by: Annotated[str, Query(max_length=10, description=", ".join(training_list.GROUPS))],
    metric: Annotated[str, Query(max_length=128, description="the metric whose range is returned")] = "",
) -> TrainingGroupsOut:
    """Returns trainings in groups, with their number, GPU-hours and the range of a metric."""
    return await training_list.group_trainings(state, who, name, query, by, metric)


@router.get("/csv", response_class=StreamingResponse, responses=_CSV)
async def download_trainings(
    name: str,
    state: State,
    who: Anyone,
    query: _Query,
    metric: Annotated[
        list[_Value], Query(max_length=MAX_SERIES, description="columns, such as loss or loss:lowest")
    ] = [],  # noqa: B006
) -> StreamingResponse:
    """Returns the trainings as CSV, with a column for each named metric."""
    keys = [parse_metric_key(one) for one in metric]
    pieces = await training_list.open_trainings_csv(state, who, name, query, keys)
    headers = {"content-disposition": f'attachment; filename="{name}-trainings.csv"'}
    return StreamingResponse(pieces, media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/{job_id}/compare/{other_id}")
async def compare_two_trainings(
    name: str, job_id: PathNumber, other_id: PathNumber, state: State, who: Member
) -> TrainingComparisonOut:
    """Returns what differs between two jobs: script, arguments, variables, commit, container, environments, datasets, nodes and
    metrics. People see it for jobs that they may look into. Secrets are masked."""
    return await compare_trainings(state, who, name, job_id, other_id)


@router.patch("/{job_id}", name="annotate")
async def annotate_training(
    name: str, job_id: PathNumber, request: TrainingNoteIn, state: State, who: Member
) -> TrainingOut:
    """Changes the note and the tags of a training."""
    return await training_list.annotate_training(state, who, name, job_id, request)
