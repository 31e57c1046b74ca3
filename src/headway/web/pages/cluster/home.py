"""The home page: one line per cluster, and its open incidents and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from starlette.responses import RedirectResponse, Response

from headway.api.auth.dependencies import AnyoneAllClusters, State
from headway.domain.incident import Incident
from headway.errors import HeadwayError
from headway.schemas.clusters import ClusterOut
from headway.schemas.nodes.nodes import NodeOut
from headway.services.access.role_rights import Right
from headway.services.app_state import AppState
from headway.services.cluster.cluster_to_schema import cluster_out
from headway.services.nodes.incident_to_schema import incident_out
from headway.services.nodes.nodes_to_schema import node_outs
from headway.store import ClusterRow
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.overview import price
from headway.web.views.state_wording import node_kind

router = page_router()
LATEST = 6
NODES = ("in use", "idle", "spare", "starting", "drained", "down")


@dataclass(frozen=True, slots=True)
class Card:
    """One cluster. `gpus`: used, free, spare, broken; `nodes`: the number of nodes in each state of NODES."""

    out: ClusterOut
    gpus: dict[str, int]
    nodes: dict[str, int]
    open: int  # open incidents
    price: str


@router.get("/")
async def home_page(state: State, who: AnyoneAllClusters) -> Response:
    """Returns the home page."""
    rows = [row for row in await state.store.clusters.all() if who.may_see_cluster(row.name)]
    cards: list[Card] = []
    faults: list[Incident] = []
    for row in rows:
        found = await state.store.incidents.open_and_recent(row.name, LATEST)
        faults += found
        cards.append(await _card(state, row, found))
    faults.sort(key=lambda incident: (incident.state.closed, -incident.opened_at))
    return render(
        "home.html",
        viewer=who,
        here="home",
        cards=cards,
        total=_total(cards),
        faults=[incident_out(incident) for incident in await state.store.incidents.with_steps(faults[:LATEST])],
        may_create=who.may(Right.ADMIN),
    )


@router.get("/clusters")
async def clusters_page() -> Response:
    """Redirects to the home page, which lists all clusters."""
    return RedirectResponse("/", status_code=303)


async def _card(state: AppState, row: ClusterRow, faults: Iterable[Incident]) -> Card:
    snapshot = state.live.snapshot(row.name)
    out = cluster_out(row, snapshot)
    try:
        nodes = node_outs(await state.clusters.resolved(row), snapshot)[1:] if snapshot.as_of is not None else []
    except HeadwayError:  # the stored file is of another version: the data in its row is still shown
        nodes = []
    open_now = sum(not incident.state.closed for incident in faults)
    return Card(out, gpu_counts(nodes), node_counts(nodes), open_now, price(out.price_usd_per_hour))


def gpu_counts(nodes: Iterable[NodeOut]) -> dict[str, int]:
    """Returns the numbers of GPUs: used, free, spare (ready to take over) and broken (idle on nodes that take no jobs)."""
    counts = Counter[str]()
    for node in nodes:
        used = sum(gpu.job_id is not None for gpu in node.gpus)
        rest = "broken" if not node.usable else "spare" if node.role == "spare" else "free"
        counts["used"] += used
        counts[rest] += len(node.gpus) - used
    return {key: counts[key] for key in ("used", "free", "spare", "broken")}


def node_counts(nodes: Iterable[NodeOut]) -> dict[str, int]:
    """Returns the number of nodes in each state of NODES."""
    words = {"up": "in use", "idle": "idle", "start": "starting", "drain": "drained", "down": "down"}
    counts = Counter[str]()
    for node in nodes:
        kind = node_kind(node)[0]
        counts["spare" if kind == "idle" and node.role == "spare" else words[kind]] += 1
    return {key: counts[key] for key in NODES}


def _total(cards: list[Card]) -> dict[str, Any]:
    gpus, nodes = Counter[str](), Counter[str]()
    cost = Decimal(0)
    for card in cards:
        gpus.update(card.gpus)
        nodes.update(card.nodes)
        try:
            cost += Decimal(card.out.price_usd_per_hour) if card.out.state != "down" else 0
        except InvalidOperation:
            continue
    return {
        "gpus": gpus,
        "all_gpus": sum(gpus.values()),
        "nodes": nodes,
        "all_nodes": sum(nodes.values()),
        "running": sum(card.out.jobs_running for card in cards),
        "pending": sum(card.out.jobs_pending for card in cards),
        "open": sum(card.open for card in cards),
        "price": price(f"{cost:.2f}") if cost else "",
        "unpriced": any(not card.price for card in cards),
        "simulated": any(card.out.simulated_gpus for card in cards),
    }
