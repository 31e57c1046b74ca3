"""Incidents: of one cluster, of all clusters, and one with all its steps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import Form
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, AnyoneAllClusters, Operator, State
from headway.api.http.path_numbers import PathNumber
from headway.domain.incident import Incident, IncidentState
from headway.schemas.nodes.incidents import IncidentOut, IncidentStepOut
from headway.services.access.role_rights import Right
from headway.services.app_state import AppState
from headway.services.nodes.incident_to_schema import incident_out
from headway.services.nodes.incidents import get_incident, return_from_incident
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.state_wording import incident_kind

router = page_router()
MOST = 500
_OVER = (IncidentState.RETURNED, IncidentState.FALSE_ALARM)
_HIDDEN = frozenset({"tests", "try", "signal", "at", "drains", "asked", "done_at", "stay"})
_WORDS = {
    "text": "the driver says", "xid": "XID", "gpu": "GPU", "job": "job", "requeued": "jobs requeued",
    "passed": "tests passed", "silent_s": "silent for, s", "dead": "dead", "fence": "fenced", "had": "its jobs",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shown:
    """A step as the page shows it."""

    step: IncidentStepOut
    after_s: float
    kind: str
    evidence: tuple[tuple[str, str], ...]


@router.get("/incidents")
async def incidents_of_all_clusters_page(state: State, who: AnyoneAllClusters, show: str = "all") -> Response:
    """Returns the incidents of all clusters, open ones first."""
    names = [row.name for row in await state.store.clusters.all() if who.may_see_cluster(row.name)]
    return render("incidents.html", viewer=who, here="incidents", **await _listed(state, names, show))


@router.get("/clusters/{name}/incidents")
async def of_cluster(name: str, state: State, who: Anyone, show: str = "all") -> Response:
    """Returns the incidents of one cluster."""
    await state.clusters.row(name)
    found = await _listed(state, [name], show)
    return render("cluster_incidents.html", viewer=who, name=name, tab="incidents", **found)


@router.get("/clusters/{name}/incidents/{number}")
async def incident_page(name: str, number: PathNumber, state: State, who: Anyone) -> Response:
    """Returns one incident with all its steps."""
    found = await get_incident(state, name, number)
    cluster = (await state.clusters.get(name))[1]
    return render(
        "incident.html",
        viewer=who,
        name=name,
        tab="incidents",
        one=found,
        kind=incident_kind(found.state),
        over=found.state in _OVER,
        steps=steps_of(found),
        may=who.may(Right.OPERATE_NODES),
        testing=found.state == IncidentState.TESTING.value,
        simulated=cluster.simulated_gpus,
    )


@router.post("/clusters/{name}/incidents/{number}/return")
async def bring_back(
    name: str, number: PathNumber, state: State, who: Operator, false_alarm: bool = Form(False)
) -> Response:
    """Tests the incident's node and returns it to service."""
    done = await return_from_incident(state, who, name, number, false_alarm=false_alarm)
    return redirect_with_message(f"/clusters/{name}/incidents/{number}", f"{done.node}: {done.steps[-1].text}")


async def _listed(state: AppState, clusters: Iterable[str], show: str) -> dict[str, Any]:
    """Returns the rows and counts, open incidents first. All are counted; of the closed ones only the most recent
    are listed."""
    found: list[Incident] = []
    every = still = 0
    for name in clusters:
        found += await state.store.incidents.open_and_recent(name)
        counts = await state.store.incidents.counts(name)
        every, still = every + counts[0], still + counts[1]
    found.sort(key=lambda incident: (incident.state.closed, -incident.opened_at))
    rows = [incident for incident in found if show != "open" or not incident.state.closed][:MOST]
    return {
        "rows": [incident_out(incident) for incident in await state.store.incidents.with_steps(rows)],
        "all": every,
        "open": still,
        "show": "open" if show == "open" else "all",
    }


def steps_of(found: IncidentOut) -> list[Shown]:
    """Returns the incident's steps, oldest first, with the current one marked."""
    began = found.fault_at or found.opened_at
    shown = []
    for i, step in enumerate(found.steps):
        last = i == len(found.steps) - 1
        kind = (
            incident_kind(step.state) if last and step.state in (*_OVER, "out of service") else "now" if last else "ok"
        )
        shown.append(Shown(step, max(0.0, step.at - began), kind, tuple(_evidence(step.evidence.items()))))
    return shown


def _evidence(pairs: Iterable[tuple[str, object]]) -> Iterable[tuple[str, str]]:
    for key, value in pairs:
        if key in _HIDDEN or value is None or value == [] or value is False:
            continue
        yield _WORDS.get(key, key.replace("_", " ")), _text(value)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
