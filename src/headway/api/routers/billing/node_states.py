"""The states that nodes were in: up, drained, down, spare, or off."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.billing_parameters import (
    CSV_OR_JSON,
    FilterText,
    NodeStateNames,
    ReportFormat,
    TimeText,
    csv_response,
)
from headway.api.http.pagination import Cursor
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.node_states import NodeStatesOut
from headway.schemas.page_size import MAX_ROWS
from headway.services.billing.ledger.ledger_refresh import refresh_ledger
from headway.services.billing.ledger.node_states import (
    NodeStateFilter,
    load_all_node_states,
    load_node_states_page,
    parse_states,
)
from headway.services.billing.reports.report_scope import load_billed_cluster, parse_period, visible_teams

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.get("/usage/nodes", response_model=NodeStatesOut, responses=CSV_OR_JSON)
async def list_node_states(
    name: str,
    state: State,
    who: Anyone,
    start: TimeText = "",
    end: TimeText = "",
    node: FilterText = "",
    group: FilterText = "",
    states: NodeStateNames = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = MAX_ROWS,
    format: ReportFormat = "json",  # noqa: A002
) -> NodeStatesOut | Response:
    """Returns the states of nodes: every second in which a node had a machine is in exactly one state, and the time
    between two machines is `off`. CSV holds all rows, JSON one page."""
    billed = await load_billed_cluster(state, name)
    visible_teams(billed, who)
    period, filters = parse_period(billed, start, end), NodeStateFilter(node, group, parse_states(states))
    await refresh_ledger(state, billed)
    if format == "csv":
        return csv_response(await load_all_node_states(state, billed, period, filters), f"{name}-nodes")
    return await load_node_states_page(state, billed, period, filters, cursor, limit)
