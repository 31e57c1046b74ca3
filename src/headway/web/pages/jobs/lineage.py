"""The graph of lineage.

GET /clusters/NAME/lineage?of=WHAT  the graph around a job, dataset, model or service"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Query
from starlette.responses import Response

from headway.api.auth.dependencies import Member, State
from headway.schemas.lineage.lineage_graph import LineageGraphOut, LineageNodeOut
from headway.services.lineage.lineage_graph import lineage_graph
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.charts.graph_drawing import BOX_HEIGHT, BOX_WIDTH, GraphDrawing, GraphNode, draw_graph
from headway.web.views.state_wording import job_word

router = page_router()
_LINKED = ("dataset", "model", "service")  # to their own graph


@router.get("/clusters/{name}/lineage")
async def lineage_page(
    name: str, state: State, who: Member, of: Annotated[str, Query(max_length=200)] = ""
) -> Response:
    """Returns the page of a graph."""
    found = await lineage_graph(state, who, name, of)
    return render(
        "lineage.html",
        viewer=who,
        name=name,
        tab="queue",
        found=found,
        start=next(node for node in found.nodes if node.key == found.start),
        graph=_drawing(found),
        box=(BOX_WIDTH, BOX_HEIGHT),
        href=lambda node: _href(name, node),
    )


def _href(name: str, node: LineageNodeOut) -> str:
    at = f"/clusters/{quote(name)}"
    if node.kind == "job":
        return f"{at}/jobs/{node.job_id}"
    if node.kind == "sweep":
        return f"{at}/sweeps/{quote(node.title)}"
    return f"{at}/lineage?of={quote(node.key)}" if node.kind in _LINKED else ""


def _drawing(found: LineageGraphOut) -> GraphDrawing:
    nodes = []
    for node in found.nodes:
        kind, word = job_word(node.state, "") if node.state else ("", "")
        line = " · ".join(part for part in (node.kind if node.kind != "job" else "", node.detail, word) if part)
        style = "here" if node.key == found.start else kind
        nodes.append(GraphNode(node.key, node.title, line, style, _href(found.cluster, node)))
    return draw_graph(nodes, found.edges)
