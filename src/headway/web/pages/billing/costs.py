"""A cluster's costs, a section a view: usage, invoice, chargeback, goodput, budgets, energy, capacity; the same figures as the
API's, for the teams that one sees. Every figure leads to the runs behind it, or to what nodes were."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query
from starlette.responses import HTMLResponse, Response

from headway.api.auth.dependencies import MAX_PATH_NUMBER, Anyone, State
from headway.api.http.pagination import Cursor
from headway.api.routers.billing import budgets, energy_capacity, goodput, invoices, usage
from headway.api.routers.billing.usage import Which
from headway.api.routers.cluster import node_states
from headway.billing import capacity
from headway.billing.periods import Period, before, days, month_of, zone
from headway.schemas.billing import CauseOut, RunsOut, UsageRow
from headway.services.billing import invoicing
from headway.services.billing.invoicing import Look, Place, place_of
from headway.services.context import AppState
from headway.services.identity import Principal, Right
from headway.store.billing.sums import NONE
from headway.store.billing.usage import BY, listed
from headway.web.page_routes import page_router
from headway.web.rendering import HEADERS, render, templates
from headway.web.views.heatmap import heat

router = page_router()
SECTIONS = (
    ("usage", "Usage"),
    ("invoice", "Invoice"),
    ("chargeback", "Chargeback"),
    ("goodput", "Goodput"),
    ("budgets", "Budgets"),
    ("energy", "Energy"),
    ("capacity", "Capacity"),
    ("runs", "Runs"),
    ("nodes", "Nodes"),
)
MOST_STATES = 200  # of a page
COLUMNS = ("productive", "lost", "held_idle", "idle", "spare", "broken")
_BY = {one: ("gpu" if one == "gpu_type" else one) for one in BY}


@dataclass(frozen=True, slots=True)
class Asked:
    """Which runs, or states of nodes, a figure led to."""

    which: Which
    start: str
    end: str
    job: int
    lossy: bool
    waited: bool
    stood: str
    cause: str
    cursor: str

    @property
    def words(self) -> dict[str, str]:
        """As an address names them."""
        of = {key: "" if value is None else str(value) for key, value in asdict(self.which).items()}
        if not self.which.least_gpus:
            of["least_gpus"] = ""
        flags = {key: "1" if getattr(self, key) else "" for key in ("lossy", "waited")}
        found = {**of, "start": self.start, "end": self.end, "job": str(self.job or ""), "state": self.stood, **flags}
        found["cause"] = self.cause
        return {key: value for key, value in found.items() if value}

    def span(self, place: Place, month: Period) -> Period:
        """Raises Refused."""
        return usage.stretch(place, self.start or str(month.start), self.end or str(month.end))


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs behind a figure, and their sums; behind a cause of loss, the cause."""

    page: RunsOut
    sums: UsageRow | None
    span: Period
    cause: CauseOut | None = None


@router.get("/clusters/{name}/costs")
async def page(
    name: str,
    state: State,
    who: Anyone,
    which: usage.Asked,
    section: Annotated[str, Query(max_length=12)] = "usage",
    period: Annotated[str, Query(max_length=7)] = "",
    by: Annotated[str, Query(max_length=12)] = "team",
    start: usage.When = "",
    end: usage.When = "",
    stood: node_states.States = "",
    lossy: bool = False,
    waited: bool = False,
    cause: Annotated[str, Query(max_length=4000)] = "",
    job: Annotated[int, Query(ge=0, le=MAX_PATH_NUMBER)] = 0,
    cursor: Cursor = "",
) -> Response:
    place = await place_of(state, name)
    month = place.month(period)
    where = zone(place.costs.timezone)
    earlier = before(month, where)
    shown = tuple(one for one in SECTIONS if one[0] != "invoice" or _sees_all(who))
    section = section if section in dict(shown) else "usage"
    by = by if by in _BY.values() else "team"
    asked = Asked(which, start, end, job, lossy, waited, stood, cause, cursor)
    found = await _found(state, place, who, section, month, by, asked)

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
        month_title=f"{datetime.fromtimestamp(month.start, where):%B %Y}",
        earlier=earlier.name if earlier else "",
        later=month_of(month.end, where).name if month.end <= place.now else "",
        found=found,
        heat=heat(found.types, month, where) if section == "capacity" else (),
        days=days(month.start, month.end, where),
        by=by,
        bys=tuple(_BY.values()),
        columns=COLUMNS,
        nothing=NONE,
        sizes=_sizes(),
        narrowed=asked.words,
        link=link,
        cluster=place.cluster,
        may_close=who.may(Right.ADMIN),
        timezone=place.costs.timezone,
    )


@router.get("/clusters/{name}/costs/note")
async def note(name: str, state: State, who: Anyone) -> Response:
    """A piece of other pages: budgets that are spent, or soon will be."""
    _, cluster = await state.cluster(name)
    seen = usage.teams_seen(Place(name, cluster, int(state.clock())), who)
    near = [
        one for one in budgets.near(await budgets.budgets_lately(state, cluster)) if seen is None or one.team in seen
    ]
    text = templates().get_template("parts/budget_note.html").render(name=name, near=near)
    return HTMLResponse(text, headers=HEADERS)


def _sees_all(who: Principal) -> bool:
    return who.may(Right.ADMIN) or who.may(Right.OPERATE_NODES)


async def _found(
    state: AppState,
    place: Place,
    who: Principal,
    section: str,
    month: Period,
    by: str,
    asked: Asked,
) -> Any:
    """The API's own answer."""
    look = Look(place, month, usage.teams_seen(place, who))
    if section == "usage":
        key = "gpu_type" if by == "gpu" else by
        only = usage.narrowed(place, who, asked.which)
        return await usage.usage_of(state, place, month, [key], only, await usage.fresh(state, place))
    if section == "runs":
        return await _runs(state, place, who, asked, asked.span(place, month))
    if section == "nodes":
        span = asked.span(place, month)
        return await node_states.nodes(
            place.name, state, who, str(span.start), str(span.end), group=asked.which.group, stood=asked.stood,
            cursor=asked.cursor, limit=MOST_STATES,
        )  # fmt: skip
    await usage.fresh(state, place)
    if section == "invoice":
        return invoices.invoice_out(place, await invoicing.bill(state, place, month))
    if section == "chargeback":
        return invoices.chargeback_out(look, await invoicing.bill(state, place, month))
    if section == "goodput":
        return await goodput.goodput_of(state, look)
    if section == "budgets":
        return await budgets.budgets_seen(state, place, look.seen)
    if section == "energy":
        return await energy_capacity.energy_of(state, look)
    return await energy_capacity.capacity_of(state, look)


def _sizes() -> dict[str, dict[str, str]]:
    """Jobs by size, as capacity names them: what asks for their runs."""
    most = [str(least - 1) for least, _ in capacity.SIZES[1:]]
    return {
        words: {"least_gpus": str(least or ""), "most_gpus": below}
        for (least, words), below in zip(capacity.SIZES, [*most, ""], strict=True)
    }


async def _runs(state: AppState, place: Place, who: Principal, asked: Asked, span: Period) -> Runs:
    page = await usage.runs(
        place.name, state, who, asked.which, str(span.start), str(span.end), job=asked.job, lossy=asked.lossy,
        waited=asked.waited, cause=asked.cause, cursor=asked.cursor,
    )  # fmt: skip
    if asked.job:
        return Runs(page, None, span)
    if asked.cause:
        return Runs(page, None, span, await _cause(state, place, who, asked, span))
    only = listed(usage.narrowed(place, who, asked.which), usage.order_of(asked.lossy, asked.waited), span.start)
    sums = await usage.usage_of(state, place, span, ["team"], only)
    return Runs(page, sums.total, span)


async def _cause(state: AppState, place: Place, who: Principal, asked: Asked, span: Period) -> CauseOut | None:
    """Its figures, above the first of its runs where they are all of them: a whole month's goodput is reckoned for it."""
    if asked.cursor or asked.which != usage.Which():
        return None
    found = (await goodput.goodput_of(state, Look(place, span, usage.teams_seen(place, who)))).causes
    return next((one for one in found if one.what == asked.cause), None)
