"""The size of a training, for the API."""

from __future__ import annotations

import asyncio
import threading

from headway.catalog.gpu_types import GPU_TYPES, find_gpu_type
from headway.errors import Refused, TooManyAtOnce
from headway.schemas.billing.sizes import SizeIn, SizeOut

_AT_ONCE = threading.BoundedSemaphore(2)  # a search of layouts takes up to two seconds of a processor


async def size_model(body: SizeIn) -> SizeOut:
    """Returns the fastest training on the GPUs, or on the fewest that fit and meet the deadline. Raises Refused and InvalidSpec
    for what is unknown, contradictory or does not fit, TooManyAtOnce while two others are sized."""
    if not _AT_ONCE.acquire(blocking=False):
        raise TooManyAtOnce("two models are sized at the moment", hint="try again in a few seconds", retry_after_s=2)
    try:
        return await asyncio.to_thread(_size, body)
    finally:
        _AT_ONCE.release()


def _size(body: SizeIn) -> SizeOut:
    from headway.sizing.batch_script import batch_script
    from headway.sizing.figure_sources import FIGURE_SOURCES
    from headway.sizing.models.model_source import shape_of_config, shape_of_name  # 1.5 MB that few servers need
    from headway.sizing.training_request import TrainingRequest, answer_training

    if bool(body.model) == (body.config is not None):
        raise Refused(
            "give model or config", hint="model is a size such as 70b; config is the content of a config.json"
        )
    gpu = find_gpu_type(body.gpu)
    if gpu is None:
        raise Refused(f"gpu: {body.gpu!r} is not known", hint=f"known are {', '.join(GPU_TYPES)}")
    if body.precision not in gpu.peak_flops:
        raise Refused(f"{gpu.name} has no {body.precision}", hint=f"it has {', '.join(gpu.peak_flops)}")
    shape = shape_of_config(body.config, "config") if body.config is not None else shape_of_name(body.model)
    request = TrainingRequest(
        shape=shape, task=body.task, precision=body.precision, optimizer=body.optimizer, sequence=body.sequence, gpus=body.gpus,
        nodes=body.nodes, gpus_per_node=body.gpus_per_node, tokens=body.tokens, deadline=body.deadline, batch=body.batch,
        price=body.usd_per_gpu_hour,
    )  # fmt: skip
    answer = answer_training(request, gpu)
    return SizeOut.model_validate({
        **answer.for_programs(), "parameters": shape.parameters, "active_parameters": shape.active_parameters,
        "script": batch_script(answer.sized), "sources": dict(FIGURE_SOURCES),
    })  # fmt: skip


def known_models() -> tuple[str, ...]:
    """Returns the names of models whose shape is known, and usual sizes."""
    from headway.sizing.models.usual_shapes import KNOWN_SHAPES

    return (*KNOWN_SHAPES, "1b", "7b", "13b", "70b", "400b")
