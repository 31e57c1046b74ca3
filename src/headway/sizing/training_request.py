"""The training that a person asks about, and the answer for one GPU type."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from headway.catalog.gpu_types import GpuType
from headway.errors import Refused
from headway.sizing.gpu_prices import GpuPrice, lowest_price
from headway.sizing.models.model_shape import ModelShape
from headway.sizing.models.model_source import parse_tokens
from headway.sizing.parameters import shipped_calibration
from headway.sizing.sized_training import (
    SizedTraining,
    default_batch_tokens,
    size_training,
    smallest_training,
    why_nothing_fits,
)
from headway.sizing.training_run import TrainingRun

_SECONDS = {"h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """A training to size. Texts and numbers are as the person wrote them; "" and 0: not given."""

    shape: ModelShape
    task: str = "pretrain"
    precision: str = "bf16"
    optimizer: str = "adamw"
    sequence: int = 4096
    gpus: int = 0
    nodes: int = 0
    gpus_per_node: int = 0
    tokens: str = ""
    deadline: str = ""
    batch: str = ""
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingAnswer:
    """The answer for one GPU type. `late_s`: seconds after the deadline, 0 without one."""

    request: TrainingRequest
    sized: SizedTraining
    price: GpuPrice | None
    late_s: float = 0.0
    in_time_gpus: int = 0  # that would meet the deadline, where it is missed; 0: none found

    @property
    def usd(self) -> float | None:
        """Price of the whole training; None without tokens or price."""
        hours = self.sized.gpu_hours
        return None if hours is None or self.price is None else hours * self.price.usd

    def for_programs(self) -> dict[str, Any]:
        """Returns the answer as plain values: bytes, seconds, shares, USD."""
        sized, run = self.sized, self.sized.best.run
        return {
            "model": {**asdict(run.shape), "parameters": run.shape.parameters, "active_parameters": run.shape.active_parameters},
            "task": run.task, "precision": run.precision, "optimizer": run.optimizer, "sequence": run.sequence,
            "gpu": run.gpu.name, "gpus": run.gpus, "nodes": run.nodes, "gpus_per_node": run.gpus_per_node,
            "layout": {**asdict(run.layout), "data": run.data_parallel}, "tokens_per_step": run.tokens_per_step,
            "memory_bytes": {**asdict(sized.best.memory), "total": sized.best.memory.total, "gpu": run.gpu.memory_bytes},
            "step_s": {**asdict(sized.best.step), "total": sized.best.step.total},
            "tok_s_gpu": sized.best.tokens_s_gpu, "tokens_s": sized.tokens_s, "band": sized.band, "outside": list(sized.outside),
            "mfu": sized.mfu, "tokens": sized.tokens, "seconds": sized.seconds, "late_s": self.late_s or None,
            "gpu_hours": sized.gpu_hours, "kwh": sized.kwh, "usd": self.usd,
            "usd_per_gpu_hour": self.price.usd if self.price else None, "price_origin": self.price.origin if self.price else None,
            "checkpoint": asdict(sized.checkpoints),
        }  # fmt: skip


def parse_duration(text: str) -> float:
    """Returns seconds of "36h", "14d" or "6w". Raises Refused."""
    match = re.fullmatch(r"(\d{1,5}(?:\.\d+)?) ?([hdw])", text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise Refused(f"{text!r} is not a time for a training", hint="write hours, days or weeks: 36h, 14d, 6w")
    return float(match[1]) * _SECONDS[match[2]]


def answer_training(request: TrainingRequest, gpu: GpuType) -> TrainingAnswer:
    """Returns the fastest training on the GPUs of the request, or on the fewest that fit and meet its deadline. Raises
    Refused for contradictions, and where nothing fits, with the nearest that does."""
    parameters = shipped_calibration().parameters
    tokens = parse_tokens(request.tokens) if request.tokens else None
    within = parse_duration(request.deadline) if request.deadline else None
    if within is not None and tokens is None:
        raise Refused("a deadline needs --tokens", hint="say how many tokens the training has: --tokens 1T")
    per_node = request.gpus_per_node or gpu.gpus_per_node
    gpus = _gpus(request, per_node)
    batch = parse_tokens(request.batch) if request.batch else default_batch_tokens(request.shape.parameters)
    if request.task != "pretrain" and not request.batch:
        batch = min(batch, 64 * request.sequence)  # fine-tuning takes small steps
    if tokens is not None and batch > tokens:
        raise Refused(
            f"a step of {batch:,.0f} tokens is more than the {tokens:,.0f} of the whole training",
            hint="give --batch, or more --tokens",
        )
    run = TrainingRun(
        request.shape, request.sequence, gpu, gpus or per_node, precision=request.precision,
        gpus_per_node=min(per_node, gpus or per_node),
        attention="flash2" if gpu.generation in ("ampere", "ada") else "flash3", task=request.task, optimizer=request.optimizer,
    )  # fmt: skip
    price = GpuPrice(request.price, "--price") if request.price else lowest_price(gpu, run.gpus_per_node)
    if gpus:
        sized = size_training(run, batch, parameters, tokens=tokens)
        if sized is None:
            message, hint = why_nothing_fits(run, batch, parameters)
            raise Refused(message, hint=hint)
        late = max(0.0, (sized.seconds or 0) - within) if within is not None else 0.0
        enough = smallest_training(run, batch, parameters, tokens=tokens, within_s=within) if late else None
        return TrainingAnswer(request, sized, price, late, enough.best.run.gpus if enough else 0)
    sized = smallest_training(run, batch, parameters, tokens=tokens, within_s=within)
    if sized is None:
        if within is not None and (slow := smallest_training(run, batch, parameters, tokens=tokens)) is not None:
            raise Refused(
                f"no number of {gpu.name} up to {4096 * per_node:,} ends within {request.deadline}, with {batch:,.0f} tokens "
                "a step",
                hint=f"give a larger --batch, or a later --deadline: {slow.best.run.gpus} GPUs take "
                f"{(slow.seconds or 0) / 86_400:,.1f} days",
            )
        message, hint = why_nothing_fits(replace(run, gpus=4096 * per_node), batch, parameters)
        raise Refused(message, hint=hint)
    return TrainingAnswer(request, sized, price)


def _gpus(request: TrainingRequest, per_node: int) -> int:
    """Returns the number of GPUs, 0 if the request leaves it open. Raises Refused for contradictions."""
    if request.nodes and request.gpus and request.gpus != request.nodes * per_node:
        raise Refused(
            f"--gpus {request.gpus} and --nodes {request.nodes} contradict each other: they have {request.nodes * per_node} GPUs",
            hint="give one of them, or --gpus-per-node",
        )
    gpus = request.gpus or request.nodes * per_node
    if gpus > per_node and gpus % per_node:
        lower = gpus // per_node * per_node
        raise Refused(
            f"{gpus} GPUs are not whole nodes of {per_node}",
            hint=f"give --gpus {lower} or {lower + per_node}, or --gpus-per-node",
        )
    return gpus
