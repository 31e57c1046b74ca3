"""Services of a cluster.

GET  /clusters/NAME/services              the list
GET  /clusters/NAME/services/SERVICE      one service: address, figures, replicas
POST /clusters/NAME/services/SERVICE/stop stops it"""

from __future__ import annotations

from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.services.access.ownership_rights import may_act_on
from headway.services.serving import services
from headway.services.serving.metrics import service_metrics
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
MINUTES = 60  # whose figures are shown
ENDED = 5  # ended replicas that are shown, the latest
# State of a service or replica -> the word whose colour it has
_WORDS = {
    "serving": "running",
    "standby": "running",
    "submitting": "waiting",
    "pending": "waiting",
    "starting": "waiting",
    "draining": "waiting",
    "ending": "waiting",
    "ended": "done",
    "stopped": "done",
    "unhealthy": "failed",
}


@router.get("/clusters/{name}/services")
async def services_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the list of services that have not ended."""
    await state.clusters.row(name)
    found = await services.list_services(state, await state.store.services.running(name))
    return render("services.html", viewer=who, name=name, tab="services", services=found, words=_WORDS)


@router.get("/clusters/{name}/services/{service}")
async def service_page(name: str, service: str, state: State, who: Anyone) -> Response:
    """Returns the page of one service."""
    _, cluster = await state.clusters.get(name)
    row = await state.store.services.get(name, service)
    found = await services.get_service_with_file(state, who, name, row.id)
    ended = [one for one in found.replicas if one.ended_at is not None][-ENDED:]
    figures = await service_metrics(state, who, name, row.id, MINUTES)
    shown = [*(one for one in found.replicas if one.ended_at is None), *reversed(ended)]
    return render(
        "service.html",
        viewer=who,
        name=name,
        tab="services",
        service=found,
        replicas=shown,
        figures=figures,
        words=_WORDS,
        may=may_act_on(cluster, who, row),
    )


@router.post("/clusters/{name}/services/{service}/stop")
async def stop_service(name: str, service: str, state: State, who: Member) -> Response:
    """Stops the service."""
    found = await services.stop_service(state, who, name, service)
    return redirect_with_message(f"/clusters/{name}/services/{found.id}", f"Service {found.name} is being stopped")
