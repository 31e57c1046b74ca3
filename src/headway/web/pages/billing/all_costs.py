"""The costs of all clusters in one month."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from headway.api.auth.dependencies import AnyoneAllClusters, State
from headway.billing.periods import days, month_of, previous_month, time_zone
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.ledger.ledger_refresh import refresh_ledger
from headway.services.billing.reports.report_scope import (
    BilledCluster,
    ReportScope,
    load_billed_cluster,
    sees_all_teams,
    visible_teams,
)
from headway.services.billing.reports.spending import Spending, load_spending
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.charts.spending_chart import cluster_chart

router = page_router()


@dataclass(frozen=True, slots=True)
class ClusterCosts:
    """The spending of one cluster. All sums contain corrections of earlier months, as invoices do. `before_cents`: of the
    month before, None if it had no costs."""

    name: str
    spending: Spending
    simulated: bool

    @property
    def cost_cents(self) -> int:
        """Returns the sum of the month."""
        return self.spending.total_cents + self.spending.correction_cents

    @property
    def before_cents(self) -> int | None:
        """Returns the sum of the month before."""
        return self.spending.months[1].cents if len(self.spending.months) > 1 else None

    @property
    def end_cents(self) -> int:
        """Returns the forecast, or the sum of a month that is over."""
        forecast = self.spending.forecast_cents
        return self.cost_cents if forecast is None else forecast + self.spending.correction_cents


@router.get("/costs")
async def all_costs_page(
    state: State, who: AnyoneAllClusters, period: Annotated[str, Query(max_length=7)] = ""
) -> Response:
    """Returns the costs of all clusters that the person may see."""
    utc = time_zone("UTC")
    month = BilledCluster("", None, int(state.clock())).month(period)
    earlier = previous_month(month, utc)
    found = [
        ClusterCosts(billed.name, await load_spending(state, ReportScope(billed, billed.month(month.name), seen)), sim)
        for billed, seen, sim in await _clusters(state, who)
    ]
    found = [one for one in found if one.cost_cents or one.before_cents]
    return render(
        "all_costs.html",
        viewer=who,
        here="all_costs",
        found=sorted(found, key=lambda one: (-one.cost_cents, one.name)),
        month=month,
        month_title=f"{datetime.fromtimestamp(month.start, utc):%B %Y}",
        earlier=earlier.name if earlier else "",
        later=month_of(month.end, utc).name if month.end <= state.clock() else "",
        chart=cluster_chart([(one.name, one.spending) for one in found], len(days(month.start, month.end, utc))),
        total=sum(one.cost_cents for one in found),
        allocated=sum(one.spending.allocated_cents for one in found),
        end=sum(one.end_cents for one in found),
        before=sum(one.before_cents or 0 for one in found),
        running=any(one.spending.forecast_cents is not None for one in found),
        of_invoice=sees_all_teams(who),
    )


async def _clusters(state: AppState, who: Principal) -> list[tuple[BilledCluster, tuple[str, ...] | None, bool]]:
    """Returns the clusters with costs that the person may see, with the teams that count (None: all) and whether the GPUs
    are simulated. Clusters that are down count for those who see all teams."""
    found = []
    for name in await state.store.machine_lifetimes.clusters():
        if not who.may_see_cluster(name):
            continue
        billed = await load_billed_cluster(state, name)
        if billed.cluster is None and not sees_all_teams(who):
            continue
        await refresh_ledger(state, billed)
        found.append((billed, visible_teams(billed, who), billed.simulated))
    return found
