"""A cluster's costs, a section a view: usage, invoice, chargeback, goodput, budgets, energy, capacity; the same figures as the
API's, for the teams that one sees. Every figure of a team leads to the runs behind it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query
from starlette.responses import HTMLResponse, Response

from headway.api import budgets, costs, goodput, reckoning, reports, usage
from headway.api.access import Anyone, Principal, Right, State
from headway.api.reckoning import Place, place_of
from headway.api.state import AppState
from headway.ledger.periods import Period, before, month_of, zone
from headway.store.usage import BY
from headway.web.heat import heat
from headway.web.html import HEADERS, render, templates
from headway.web.route import page_router

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
)
COLUMNS = ("productive", "lost", "held_idle", "idle", "spare", "broken")
_BY = {one: ("gpu" if one == "gpu_type" else one) for one in BY}
Text = Annotated[str, Query(max_length=64)]


@router.get("/clusters/{name}/costs")
async def page(
    name: str,
    state: State,
    who: Anyone,
    section: Annotated[str, Query(max_length=12)] = "usage",
    period: Annotated[str, Query(max_length=7)] = "",
    by: Annotated[str, Query(max_length=12)] = "team",
    team: Text = "",
    user: Text = "",
    lossy: bool = False,
    job: Annotated[int, Query(ge=0, le=2**53)] = 0,
    cursor: Annotated[str, Query(max_length=12, pattern=r"^\d*$")] = "",
) -> Response:
    place = await place_of(state, name)
    month = place.month(period)
    where = zone(place.costs.timezone)
    shown = tuple(one for one in SECTIONS if one[0] != "invoice" or _sees_all(who))
    section = section if section in dict(shown) else "usage"
    by = by if by in _BY.values() else "team"
    narrowed = {"team": team, "user": user, "lossy": "1" if lossy else "", "job": str(job) if job else ""}
    found = await _found(state, place, who, section, month, by, narrowed, cursor)

    def link(to: str = section, **others: str) -> str:
        asked = {"section": to, "period": month.name, **others}
        return f"?{urlencode({key: value for key, value in asked.items() if value})}"

    return render(
        "costs.html",
        viewer=who,
        name=name,
        tab="costs",
        section=section,
        sections=shown,
        month=month,
        month_title=f"{datetime.fromtimestamp(month.start, where):%B %Y}",
        earlier=before(month, where).name,
        later=month_of(month.end, where).name if month.end <= place.now else "",
        found=found,
        heat=heat(found.types, month, where) if section == "capacity" else (),
        by=by,
        bys=tuple(_BY.values()),
        columns=COLUMNS,
        narrowed={key: value for key, value in narrowed.items() if value},
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
    return who.may(Right.ADMIN) or who.may(Right.NODES)


async def _found(
    state: AppState,
    place: Place,
    who: Principal,
    section: str,
    month: Period,
    by: str,
    narrowed: dict[str, str],
    cursor: str,
) -> Any:
    """The API's own answer."""
    look = usage.Look(place, month, usage.teams_seen(place, who))
    if section == "usage":
        key = "gpu_type" if by == "gpu" else by
        only = usage.narrowed(place, who, narrowed["team"], narrowed["user"], "", "")
        return await usage.usage_of(state, place, month, [key], only, await usage.fresh(state, place))
    if section == "runs":
        return await usage.runs(
            place.name, state, who, str(month.start), str(month.end), narrowed["team"], narrowed["user"],
            job=int(narrowed["job"] or 0), lossy=bool(narrowed["lossy"]), cursor=cursor,
        )  # fmt: skip
    await usage.fresh(state, place)
    if section == "invoice":
        return costs.invoice_out(place, await reckoning.bill(state, place, month))
    if section == "chargeback":
        return costs.chargeback_out(look, await reckoning.bill(state, place, month))
    if section == "goodput":
        return await goodput.goodput_of(state, look)
    if section == "budgets":
        return await budgets.budgets_seen(state, place, look.seen)
    if section == "energy":
        return await reports.energy_of(state, look)
    return await reports.capacity_of(state, look)
