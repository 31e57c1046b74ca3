"""Usage sums and the runs behind them. People see the usage of their own teams; operators and admins see all of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.billing_parameters import CSV_OR_JSON, ReportFormat, TimeText, UsageFilterQuery, csv_response
from headway.api.http.pagination import Cursor
from headway.api.http.path_numbers import MAX_PATH_NUMBER
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.usage import RunsOut, UsageOut
from headway.schemas.page_size import DEFAULT_ROWS, MAX_ROWS
from headway.services.billing.ledger.ledger_refresh import refresh_ledger
from headway.services.billing.reports.report_scope import load_billed_cluster, parse_period
from headway.services.billing.reports.runs import RunSelection, load_runs
from headway.services.billing.reports.usage import load_usage, parse_dimensions, usage_selection

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.get("/usage", response_model=UsageOut, responses=CSV_OR_JSON)
async def get_usage(
    name: str,
    state: State,
    who: Anyone,
    which: UsageFilterQuery,
    by: Annotated[list[str] | None, Query(max_length=5, description="team, user, partition, gpu or group")] = None,
    start: TimeText = "",
    end: TimeText = "",
    format: ReportFormat = "json",  # noqa: A002
) -> UsageOut | Response:
    """Returns sums by team, user, partition, GPU type and group. Running jobs are counted up to now."""
    billed = await load_billed_cluster(state, name)
    dimensions = parse_dimensions(by or ["team"])
    period, only = parse_period(billed, start, end), usage_selection(billed, who, which)
    stale = await refresh_ledger(state, billed)
    report = await load_usage(state, billed, period, dimensions, only, stale)
    return csv_response(report, f"{name}-usage") if format == "csv" else report


@router.get("/usage/runs")
async def list_usage_runs(
    name: str,
    state: State,
    who: Anyone,
    which: UsageFilterQuery,
    start: TimeText = "",
    end: TimeText = "",
    job: Annotated[int, Query(ge=0, le=MAX_PATH_NUMBER)] = 0,
    lossy: Annotated[bool, Query(description="only runs with lost or idle time, the most expensive first")] = False,
    waited: Annotated[bool, Query(description="only runs that started in the period, longest wait first")] = False,
    cause: Annotated[str, Query(max_length=4000, description="only runs with this cause of loss, as in goodput")] = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = DEFAULT_ROWS,
) -> RunsOut:
    """Returns the runs of all jobs, the latest first; with `job` all runs of that job, the first one first. The cursor
    names the last run of the page, so runs that start in between neither repeat nor drop rows."""
    billed = await load_billed_cluster(state, name)
    period, only = parse_period(billed, start, end), usage_selection(billed, who, which)
    selection = RunSelection(job, lossy, waited, cause)
    await refresh_ledger(state, billed)
    return await load_runs(state, billed, period, only, selection, cursor, limit)
