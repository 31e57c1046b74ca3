"""The search over pages, clusters, jobs and nodes, and the menu that changes the cluster."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from headway.api.auth.dependencies import AnyoneAllClusters, State
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.cluster_to_schema import cluster_out
from headway.services.read_model.quick_search import search_clusters
from headway.web import navigation
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.search import search_sections

router = page_router()
MOST_CHARS = 100

SearchText = Annotated[str, Query(max_length=MOST_CHARS)]


@router.get("/search")
async def search_page(
    request: Request, state: State, who: AnyoneAllClusters, q: SearchText = "", cluster: SearchText = ""
) -> Response:
    """Returns the results, as a page or, for the search of the header, as its part."""
    names = await _clusters(state, who)
    current = cluster if cluster in names else ""
    found = search_clusters([state.live.snapshot(name) for name in names], q, current)
    sections = search_sections(found, q, who.role, current)
    part = request.headers.get("hx-request") == "true"
    template = "parts/search_results.html" if part else "search.html"
    return render(template, viewer=who, here="search", q=q, cluster=current, sections=sections)


@router.get("/search/clusters")
async def cluster_menu(state: State, who: AnyoneAllClusters, tab: SearchText = "") -> Response:
    """Returns the menu of clusters. Its links lead to the page `tab` of the other cluster."""
    rows = [row for row in await state.store.clusters.all() if who.may_see_cluster(row.name)]
    path = next((one.path for one in navigation.CLUSTER if one.key == tab), "")
    clusters = [cluster_out(row, state.live.snapshot(row.name)) for row in rows]
    return render("parts/cluster_menu.html", viewer=who, clusters=clusters, path=path)


async def _clusters(state: AppState, who: Principal) -> list[str]:
    return [row.name for row in await state.store.clusters.all() if who.may_see_cluster(row.name)]
