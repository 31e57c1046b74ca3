"""Models of a cluster.

GET /clusters/NAME/models             the models of the person's teams, and the latest promotions
GET /clusters/NAME/models/TEAM/MODEL  one model: versions, approvals, promotions with their gates"""

from __future__ import annotations

from starlette.responses import Response

from headway.api.auth.dependencies import Member, State
from headway.errors import Refused, Unreachable
from headway.schemas.storage.models import ModelOut, ModelVersionOut
from headway.services.models import promotions
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
SHOWN_METRICS = 8  # of a version
_WORDS = {
    "pending": "waiting",
    "running": "running",
    "promoting": "running",
    "promoted": "done",
    "refused": "failed",
    "waiting": "waiting",
    "passed": "done",
    "failed": "failed",
    "skipped": "cancelled",
}


@router.get("/clusters/{name}/models")
async def models_page(name: str, state: State, who: Member) -> Response:
    """Returns the list of models, also while MLflow does not answer."""
    await state.clusters.row(name)
    found: list[ModelOut] = []
    fault: Refused | Unreachable | None = None
    try:
        found = await promotions.list_models(state, who, name)
    except (Refused, Unreachable) as error:
        fault = error
    rows = await promotions.list_promotions(state, who, name)
    return render(
        "models.html", viewer=who, name=name, tab="trainings", models=found, fault=fault, promotions=rows, words=_WORDS
    )


@router.get("/clusters/{name}/models/{team}/{model}")
async def model_page(name: str, team: str, model: str, state: State, who: Member) -> Response:
    """Returns the page of one model."""
    found = await promotions.get_model(state, who, name, team, model)
    rows = await promotions.list_promotions(state, who, name, team=team, model=model)
    return render(
        "model.html",
        viewer=who,
        name=name,
        tab="trainings",
        model=found,
        promotions=rows,
        words=_WORDS,
        metrics=_metrics,
        approvals=lambda version: [one for one in found.approvals if one.version == version],
    )


def _metrics(version: ModelVersionOut) -> str:
    """Returns the metrics of a version as text."""
    values = [f"{name} {value:.4g}" for name, value in version.metrics.items() if value is not None]
    more = len(values) - SHOWN_METRICS
    return ", ".join([*values[:SHOWN_METRICS], *([f"{more} more"] if more > 0 else [])])
