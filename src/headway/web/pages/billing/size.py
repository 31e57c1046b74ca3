"""The size of a training: GPUs, layout, memory, time, price. The form is in the address, so that an answer can be shared."""

from __future__ import annotations

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import Response

from headway.api.auth.dependencies import AnyoneAllClusters
from headway.catalog.gpu_types import GPU_TYPES
from headway.errors import HeadwayError
from headway.schemas.billing.sizes import SizeIn, SizeOut
from headway.services.billing.sizes import known_models, size_model
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views import size_figures as view

router = page_router()
_FIELDS = ("model", "task", "tokens", "deadline", "gpu", "gpus", "nodes", "gpus_per_node", "precision", "optimizer",
           "sequence", "batch", "usd_per_gpu_hour")  # fmt: skip
_CHOICES = {name: SizeIn.model_json_schema()["properties"][name]["enum"] for name in ("task", "precision", "optimizer")}
_TASKS = {
    "pretrain": "pre-training",
    "full": "fine-tuning of all weights",
    "lora": "LoRA: adapters",
    "qlora": "QLoRA: adapters, 4-bit weights",
}


@router.get("/size")
async def size_page(request: Request, who: AnyoneAllClusters) -> Response:
    """Returns the form, with the answer if it names a model."""
    sent = {name: request.query_params.get(name, "").strip() for name in _FIELDS}
    found: SizeOut | None = None
    faults: dict[str, str] = {}
    error: HeadwayError | None = None
    if sent["model"]:
        try:
            found = await size_model(SizeIn.model_validate({name: value for name, value in sent.items() if value}))
        except ValidationError as invalid:
            faults = {str(each["loc"][0]): each["msg"] for each in invalid.errors(include_url=False)}
        except HeadwayError as refused:
            error = refused
    return render(
        "size.html",
        status=422 if faults else error.http_status if error else 200,
        viewer=who,
        here="size",
        sent=sent,
        faults=faults,
        trouble=(view.in_words_of_the_form(error.message), view.in_words_of_the_form(error.hint)) if error else None,
        found=found,
        figures=view.size_figures(found) if found else [],
        parts=view.memory_parts(found) if found else [],
        layout=view.layout_rows(found.layout) if found else [],
        late=view.days(found.late_s) if found and found.late_s else "",
        models=known_models(),
        gpus=tuple(GPU_TYPES),
        choices=_CHOICES,
        tasks=_TASKS,
    )
