"""Sweeps of a cluster.

GET  /clusters/NAME/sweeps             the list
GET  /clusters/NAME/sweeps/SWEEP       one sweep: chart and trials
POST /clusters/NAME/sweeps/SWEEP/stop  stops it"""

from __future__ import annotations

from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.services.access.role_rights import Right
from headway.services.sweeps import sweeps
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.charts.sweep_chart import HEIGHT, WIDTH, sweep_chart

router = page_router()
SHOWN = 50  # sweeps in the list
_WORDS = {"pending": "waiting", "submitting": "waiting", "stopped": "waiting", "cancelled": "waiting"}


@router.get("/clusters/{name}/sweeps")
async def sweeps_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the list of sweeps, the latest first."""
    await state.clusters.row(name)
    found = await sweeps.list_sweeps(state, await state.store.sweeps.recent(name, limit=SHOWN))
    return render("sweeps.html", viewer=who, name=name, tab="sweeps", sweeps=found, words=_WORDS)


@router.get("/clusters/{name}/sweeps/{sweep}")
async def sweep_page(name: str, sweep: str, state: State, who: Anyone) -> Response:
    """Returns the page of one sweep."""
    found = await sweeps.get_sweep(state, name, sweep)
    return render(
        "sweep.html",
        viewer=who,
        name=name,
        tab="sweeps",
        sweep=found,
        chart=sweep_chart(found),
        width=WIDTH,
        height=HEIGHT,
        words=_WORDS,
        may=who.may(Right.RUN_JOBS) and (found.user == who.user or who.may(Right.ADMIN) or who.may(Right.LEAD_TEAM)),
    )


@router.post("/clusters/{name}/sweeps/{sweep}/stop")
async def stop_sweep(name: str, sweep: str, state: State, who: Member) -> Response:
    """Stops the sweep."""
    found = await sweeps.stop_sweep(state, who, name, sweep)
    return redirect_with_message(f"/clusters/{name}/sweeps/{found.id}", f"Sweep {found.name} is being stopped")
