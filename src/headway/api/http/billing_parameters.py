"""Query parameters that the billing reports share, and the CSV response."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from starlette.responses import Response

from headway.schemas.base import ResponseModel
from headway.schemas.billing import models_as_csv
from headway.services.billing.reports.usage import MAX_GPUS, UsageFilter

MonthText = Annotated[str, Query(max_length=7, description="a month, as 2026-10 (default: the current one)")]
ReportFormat = Annotated[Literal["json", "csv"], Query(alias="format")]
FilterText = Annotated[str, Query(max_length=64, description='"-": without one')]
TimeText = Annotated[str, Query(max_length=40, description="2026-10, 2026-10-03, 2026-10-03T12:00, or unix seconds")]
NodeStateNames = Annotated[
    str, Query(alias="state", max_length=40, description="only these states, comma-separated, as down,drained")
]


# The answer of an endpoint with ReportFormat, for the OpenAPI document; FastAPI adds the JSON of its model.
CSV_OR_JSON: dict[int | str, dict[str, Any]] = {
    200: {"description": "The report, as CSV with format=csv", "content": {"text/csv": {"schema": {"type": "string"}}}}
}


def _usage_filter(
    team: FilterText = "",
    user: FilterText = "",
    partition: FilterText = "",
    gpu: FilterText = "",
    group: FilterText = "",
    least_gpus: Annotated[int, Query(ge=0, le=MAX_GPUS, description="smallest number of GPUs of a run")] = 0,
    most_gpus: Annotated[int | None, Query(ge=0, le=MAX_GPUS, description="largest number of GPUs of a run")] = None,
) -> UsageFilter:
    return UsageFilter(team, user, partition, gpu, group, least_gpus, most_gpus)


UsageFilterQuery = Annotated[UsageFilter, Depends(_usage_filter)]


def csv_response(report: ResponseModel, name: str) -> Response:
    """Returns the report as a CSV attachment called NAME.csv."""
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(models_as_csv.to_csv(report), media_type="text/csv", headers=headers)
