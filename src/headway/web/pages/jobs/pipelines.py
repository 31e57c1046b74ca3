"""Pipelines of a cluster.

GET  /clusters/NAME/pipelines                 the list
GET  /clusters/NAME/pipelines/PIPELINE        one pipeline: graph, steps and their outputs
POST /clusters/NAME/pipelines/PIPELINE/retry  submits its failed steps again, and those after them"""

from __future__ import annotations

from typing import Annotated

from fastapi import Form
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.domain.dataset import format_bytes
from headway.schemas.submission.pipelines import PipelineOut, PipelineRetryIn, StepOut
from headway.services.access.ownership_rights import is_owner_or_admin
from headway.services.access.role_rights import Right
from headway.services.pipelines import pipelines
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.charts.graph_drawing import BOX_HEIGHT, BOX_WIDTH, GraphDrawing, GraphNode, draw_graph
from headway.web.views.state_wording import job_word

router = page_router()
SHOWN = 30  # pipelines in the list
_WORDS = {"CACHED": ("done", "cached"), "SKIPPED": ("cancelled", "skipped"), "UNKNOWN": ("waiting", "not known")}


def step_word(step: StepOut) -> tuple[str, str]:
    """Returns (kind, word) of a step's state."""
    return _WORDS.get(step.state) or job_word(step.state, step.why)


@router.get("/clusters/{name}/pipelines")
async def pipelines_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the list of pipelines, the latest first."""
    await state.clusters.row(name)
    rows = await state.store.pipelines.recent(name, limit=SHOWN)
    found = await pipelines.describe_pipelines(state, name, rows)
    return render("pipelines.html", viewer=who, name=name, tab="pipelines", pipelines=found)


@router.get("/clusters/{name}/pipelines/{pipeline}")
async def pipeline_page(name: str, pipeline: str, state: State, who: Anyone) -> Response:
    """Returns the page of one pipeline."""
    found = await pipelines.get_pipeline(state, name, pipeline)
    return render(
        "pipeline.html",
        viewer=who,
        name=name,
        tab="pipelines",
        pipeline=found,
        graph=_graph(found, name),
        box=(BOX_WIDTH, BOX_HEIGHT),
        word=step_word,
        size=format_bytes,
        may=who.may(Right.RUN_JOBS) and is_owner_or_admin(who, found),
    )


@router.post("/clusters/{name}/pipelines/{pipeline}/retry")
async def retry_pipeline(
    name: str, pipeline: str, state: State, who: Member, step: Annotated[str, Form(max_length=48)] = ""
) -> Response:
    """Submits the failed steps again, or the step that is named, and all that need them."""
    wanted = PipelineRetryIn(steps=[step] if step else [])
    found = await pipelines.retry_pipeline(state, who, name, pipeline, wanted)
    return redirect_with_message(
        f"/clusters/{name}/pipelines/{found.id}", f"{step or 'Failed steps'} of {found.name} run again"
    )


def _graph(pipeline: PipelineOut, name: str) -> GraphDrawing:
    """Returns the steps and which need which."""
    nodes = []
    for step in pipeline.steps:
        kind, word = step_word(step)
        told = ", ".join(f"{key} {output.shown}" for key, output in step.outputs.items())
        href = f"/clusters/{name}/jobs/{step.job_id}" if step.job_id else ""
        nodes.append(GraphNode(step.name, step.name, f"{word} · {told}" if told else word, kind, href))
    return draw_graph(nodes, [(need, step.name) for step in pipeline.steps for need in step.needs])
