"""A cluster's costs, with a view per section: spending, usage, invoice, chargeback, goodput, budgets, energy, capacity, forecast.
The figures are those of the API, for the teams that the person may see. Every figure links to the runs or node states
behind it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request
from pydantic import ValidationError
from starlette.responses import HTMLResponse, RedirectResponse, Response

from headway.api.auth.dependencies import Anyone, Operator, State
from headway.api.http.billing_parameters import NodeStateNames, TimeText, UsageFilterQuery
from headway.api.http.pagination import Cursor
from headway.api.http.path_numbers import MAX_PATH_NUMBER
from headway.api.http.security_headers import PAGE_HEADERS
from headway.billing import capacity
from headway.billing.periods import Period, days, month_of, previous_month, time_zone
from headway.domain.operation_kinds import WhatIfParams
from headway.errors import Refused
from headway.schemas.billing.forecast import ForecastOut
from headway.schemas.billing.goodput import CauseOut
from headway.schemas.billing.purchase import PurchaseIn, PurchaseOut
from headway.schemas.billing.usage import RunsOut, UsageRow
from headway.schemas.whatif import WhatIfIn
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.billing.budgets import cached_budgets, spent_or_nearly_spent
from headway.services.billing.invoice_views import load_chargeback, load_invoice
from headway.services.billing.ledger.ledger_refresh import refresh_ledger
from headway.services.billing.ledger.node_states import NodeStateFilter, load_node_states_page, parse_states
from headway.services.billing.purchase import load_purchase
from headway.services.billing.reports.capacity import load_capacity
from headway.services.billing.reports.energy import load_energy
from headway.services.billing.reports.forecast import load_forecast
from headway.services.billing.reports.goodput import load_goodput
from headway.services.billing.reports.report_scope import (
    BilledCluster,
    ReportScope,
    load_billed_cluster,
    parse_period,
    sees_all_teams,
    visible_teams,
)
from headway.services.billing.reports.runs import SORTS, RunSelection, load_runs
from headway.services.billing.reports.spending import Spending, load_burn_downs, load_spending
from headway.services.billing.reports.usage import UsageFilter, load_usage, usage_selection
from headway.services.cluster import whatif as whatifs
from headway.store.billing.run_sums import NONE, Only, ReportSpan
from headway.store.billing.usage import BY, list_filter
from headway.web.page_routes import page_router
from headway.web.rendering import render, templates
from headway.web.views.charts.forecast_chart import forecast_chart, forecast_weeks
from headway.web.views.charts.month_heatmap import heat
from headway.web.views.charts.spending_chart import burn_down_chart, day_chart, sum_chart
from headway.web.views.whatif_table import WhatIfView, whatif_table

router = page_router()
SECTIONS = (
    ("spending", "Spending"),
    ("usage", "Usage"),
    ("invoice", "Invoice"),
    ("chargeback", "Chargeback"),
    ("goodput", "Goodput"),
    ("budgets", "Budgets"),
    ("energy", "Energy"),
    ("capacity", "Capacity"),
    ("forecast", "Forecast"),
    ("buy", "Buy"),
    ("runs", "Runs"),
    ("nodes", "Nodes"),
)
MAX_RUNS = 100  # runs per page
MAX_NODE_STATES = 200  # node states per page
COLUMNS = ("productive", "lost", "allocated_idle", "idle", "spare", "broken", "fixed")
_BY = {dimension: ("gpu" if dimension == "gpu_type" else dimension) for dimension in BY}


@dataclass(frozen=True, slots=True)
class CostsQuery:
    """The runs or node states that a figure links to."""

    which: UsageFilter
    start: str
    end: str
    job: int
    lossy: bool
    waited: bool
    node_states: str
    cause: str
    sort: str
    cursor: str

    @property
    def runs(self) -> RunSelection:
        """Returns which runs to list, and in which order."""
        return RunSelection(self.job, self.lossy, self.waited, self.cause, self.sort)

    @property
    def words(self) -> dict[str, str]:
        """Returns the query parameters of an address."""
        of = {key: "" if value is None else str(value) for key, value in asdict(self.which).items()}
        if not self.which.least_gpus:
            of["least_gpus"] = ""
        flags = {key: "1" if getattr(self, key) else "" for key in ("lossy", "waited")}
        found = {
            **of,
            "start": self.start,
            "end": self.end,
            "job": str(self.job or ""),
            "state": self.node_states,
            **flags,
        }
        found["cause"] = self.cause
        return {key: value for key, value in found.items() if value}

    def span(self, billed: BilledCluster, month: Period) -> Period:
        """Returns the period; by default the month. Raises Refused for invalid times."""
        return parse_period(billed, self.start or str(month.start), self.end or str(month.end))


@dataclass(frozen=True, slots=True)
class RunsView:
    """The runs behind a figure with their sums, or the runs behind a cause of loss with the cause."""

    page: RunsOut
    sums: UsageRow | None
    span: Period
    cause: CauseOut | None = None


@dataclass(frozen=True, slots=True)
class PurchaseView:
    """The form of the section Buy, and its answer or why there is none."""

    sent: dict[str, str]
    found: PurchaseOut | None
    trouble: str = ""
    hint: str = ""


@router.get("/clusters/{name}/costs")
async def costs_page(
    name: str,
    request: Request,
    state: State,
    who: Anyone,
    which: UsageFilterQuery,
    section: Annotated[str, Query(max_length=12)] = "spending",
    period: Annotated[str, Query(max_length=7)] = "",
    by: Annotated[str, Query(max_length=12)] = "team",
    start: TimeText = "",
    end: TimeText = "",
    node_states: NodeStateNames = "",
    lossy: bool = False,
    waited: bool = False,
    cause: Annotated[str, Query(max_length=4000)] = "",
    sort: Annotated[str, Query(max_length=12)] = "",
    job: Annotated[int, Query(ge=0, le=MAX_PATH_NUMBER)] = 0,
    cursor: Cursor = "",
    whatif: Annotated[str, Query(max_length=32)] = "",
) -> Response:
    """Returns one section of the cluster's costs."""
    billed = await load_billed_cluster(state, name)
    month = billed.month(period)
    where = time_zone(billed.costs.timezone)
    month_title = f"{datetime.fromtimestamp(month.start, where):%B %Y}"
    earlier = previous_month(month, where)
    shown = tuple(entry for entry in SECTIONS if entry[0] != "invoice" or sees_all_teams(who))
    section = section if section in dict(shown) else "spending"
    by = by if by in _BY.values() else "team"
    nothing = (
        await _no_costs(state, billed, month, who, month_title)
        if not start and section not in ("budgets", "buy", "forecast")
        else ""
    )
    query = CostsQuery(which, start, end, job, lossy, waited, node_states, cause, sort if sort in SORTS else "", cursor)
    found = None if nothing else await _load_section(state, billed, who, section, month, by, query)

    def link(to: str = section, **others: str) -> str:
        words = {"section": to, "period": month.name, **others}
        return f"?{urlencode({key: value for key, value in words.items() if value})}"

    return render(
        "costs.html",
        viewer=who,
        name=name,
        tab="costs",
        section=section,
        sections=shown,
        month=month,
        month_title=month_title,
        no_costs=nothing,
        earlier=earlier.name if earlier else "",
        later=month_of(month.end, where).name if month.end <= billed.now else "",
        found=found,
        heat=heat(found.types, month, where) if section == "capacity" and found else (),
        day_chart=day_chart(found, len(days(month.start, month.end, where))) if isinstance(found, Spending) else None,
        sum_chart=sum_chart(found, month, billed.now) if isinstance(found, Spending) else None,
        forecast_chart=forecast_chart(found) if isinstance(found, ForecastOut) else None,
        weeks=forecast_weeks(found) if isinstance(found, ForecastOut) else (),
        utc_day=lambda at: f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}",
        burn_down_chart=lambda down: burn_down_chart(down, billed.now),
        day_only=lambda at, zone="": f"{datetime.fromtimestamp(at, time_zone(zone) if zone else where):%Y-%m-%d}",
        days=days(month.start, month.end, where),
        by=by,
        bys=tuple(_BY.values()),
        columns=COLUMNS,
        nothing=NONE,
        sizes=_sizes(),
        narrowed=query.words,
        sorted_by=query.sort,
        link=link,
        cluster=billed.cluster,
        purchase=await _purchase(state, name, who, request) if section == "buy" else None,
        whatif=await _whatif(state, billed, who, whatif) if section == "capacity" else None,
        may_close=who.may(Right.ADMIN),
        timezone=billed.costs.timezone,
    )


@router.get("/clusters/{name}/costs/note")
async def budget_note(name: str, state: State, who: Anyone) -> Response:
    """Returns a fragment for other pages: budgets that are spent, or soon will be."""
    _, cluster = await state.clusters.get(name)
    seen = visible_teams(BilledCluster(name, cluster, int(state.clock())), who)
    near = [
        budget
        for budget in spent_or_nearly_spent(await cached_budgets(state, cluster))
        if seen is None or budget.team in seen
    ]
    text = templates().get_template("parts/budget_note.html").render(name=name, near=near)
    return HTMLResponse(text, headers=PAGE_HEADERS)


async def _no_costs(state: AppState, billed: BilledCluster, month: Period, who: Principal, title: str) -> str:
    """Returns why the month has no figures; "" if it has some."""
    if month.start > billed.now:
        return f"{title} has not begun"
    if await state.store.machine_lifetimes.between(billed.name, month.start, month.end):
        return ""
    if any(row.reserved and row.since < month.end for row in await state.store.prices.of_cluster(billed.name)):
        return ""
    span = ReportSpan(month.start, month.end, billed.now)
    seen = visible_teams(billed, who)
    if any(total.runs or total.gpu_s for total in await state.store.usage.totals(billed.name, span, [], Only(seen))):
        return ""
    return f"{billed.name} had no machine and no job in {title}"


@router.post("/clusters/{name}/whatif")
async def start_whatif(name: str, request: Request, state: State, who: Operator) -> Response:
    """Queues a what-if and redirects to its progress."""
    from headway.validation.yaml_parser import parse_yaml

    form = await request.form()
    sent = {key: str(form.get(key, "")).strip() for key in ("nodes", "team", "gpus", "policy", "since")}
    try:
        wanted = WhatIfIn(
            nodes=sent["nodes"].split(),
            caps=[f"{sent['team']}={sent['gpus'] or 'none'}"] if sent["team"] else [],
            policy=await asyncio.to_thread(parse_yaml, sent["policy"], "policy") if sent["policy"] else {},
            since=sent["since"] or "now-1days",
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Refused(f"{first['loc'][0]}: {first['msg']}", hint=f"headway whatif {name} --help") from None
    operation = await whatifs.start_whatif(state, who, name, wanted)
    return RedirectResponse(f"/operations/{operation.id}", status_code=303)


async def _purchase(state: AppState, name: str, who: Principal, request: Request) -> PurchaseView:
    """Returns the cheapest mix for the prices in the address, or why there is none."""
    sent = {key: request.query_params.get(key, "").strip() for key in PurchaseIn.model_fields}
    try:
        wanted = PurchaseIn.model_validate({key: value for key, value in sent.items() if value})
        return PurchaseView(sent, await load_purchase(state, name, who, wanted))
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        return PurchaseView(sent, None, f"{first['loc'][0]}: {first['msg']}")
    except Refused as refused:
        return PurchaseView(sent, None, refused.message, refused.hint)


async def _whatif(state: AppState, billed: BilledCluster, who: Principal, operation: str) -> WhatIfView | None:
    """Returns the result of the operation, or the newest one, and all results that are kept. They show all teams: None for
    others than operators and admins. A cluster that is down has none."""
    if billed.cluster is None or not who.may(Right.OPERATE_NODES):
        return None
    results = await whatifs.list_whatifs(state, billed.name)
    shown = next((one for one in results if one.operation == operation), results[0] if results else None)
    running = await state.store.operations.active(billed.name, WhatIfParams().subject)
    teams = tuple(team.name for team in billed.cluster.teams)
    return WhatIfView(tuple(results), whatif_table(shown) if shown else None, running.id if running else "", teams)


async def _load_section(
    state: AppState,
    billed: BilledCluster,
    who: Principal,
    section: str,
    month: Period,
    by: str,
    query: CostsQuery,
) -> Any:
    """Returns the API's data of the section."""
    scope = ReportScope(billed, month, visible_teams(billed, who))
    if section == "usage":
        key = "gpu_type" if by == "gpu" else by
        only = usage_selection(billed, who, query.which)
        return await load_usage(state, billed, month, [key], only, await refresh_ledger(state, billed))
    if section == "runs":
        return await _runs(state, billed, who, query, query.span(billed, month))
    if section == "nodes":
        span = query.span(billed, month)
        filters = NodeStateFilter(group=query.which.group, states=parse_states(query.node_states))
        await refresh_ledger(state, billed)
        return await load_node_states_page(state, billed, span, filters, query.cursor, MAX_NODE_STATES)
    if section == "buy":
        return None
    await refresh_ledger(state, billed)
    if section == "spending":
        return await load_spending(state, scope)
    if section == "invoice":
        return await load_invoice(state, billed, month)
    if section == "chargeback":
        return await load_chargeback(state, scope)
    if section == "goodput":
        return await load_goodput(state, scope)
    if section == "budgets":
        return await load_burn_downs(state, billed, scope.visible_teams)
    if section == "energy":
        return await load_energy(state, scope)
    if section == "forecast":
        return await load_forecast(state, scope)
    return await load_capacity(state, scope)


def _sizes() -> dict[str, dict[str, str]]:
    """Returns the query parameters that select jobs by size, by the size names of capacity."""
    most = [str(least - 1) for least, _ in capacity.SIZES[1:]]
    return {
        words: {"least_gpus": str(least or ""), "most_gpus": below}
        for (least, words), below in zip(capacity.SIZES, [*most, ""], strict=True)
    }


async def _runs(state: AppState, billed: BilledCluster, who: Principal, query: CostsQuery, span: Period) -> RunsView:
    only = usage_selection(billed, who, query.which)
    await refresh_ledger(state, billed)
    page = await load_runs(state, billed, span, only, query.runs, query.cursor, MAX_RUNS)
    if query.job:
        return RunsView(page, None, span)
    if query.cause:
        return RunsView(page, None, span, await _cause(state, billed, who, query, span))
    only = list_filter(only, query.runs.order, span.start)
    sums = await load_usage(state, billed, span, ["team"], only)
    return RunsView(page, sums.total, span)


async def _cause(
    state: AppState, billed: BilledCluster, who: Principal, query: CostsQuery, span: Period
) -> CauseOut | None:
    """Returns the figures of a cause of loss. Only for its first page without filters, because a whole month's
    goodput is computed for it."""
    if query.cursor or query.which != UsageFilter():
        return None
    found = (await load_goodput(state, ReportScope(billed, span, visible_teams(billed, who)))).causes
    return next((found_cause for found_cause in found if found_cause.what == query.cause), None)
