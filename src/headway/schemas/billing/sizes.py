"""Models of the size of a training: GPUs, layout, time and price."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel


class SizeIn(RequestModel):
    """A training to size. `model`: a size (70b) or a known model, or `config`: the content of a config.json. Without `gpus` and
    `nodes`: as few as fit and meet `deadline`."""

    model: str = Field("", max_length=200, examples=["llama-3-8b"])
    config: dict[str, Any] | None = Field(None, max_length=200)
    gpu: str = Field("h100", max_length=64)
    gpus: int = Field(0, ge=0, le=100_000)
    nodes: int = Field(0, ge=0, le=20_000)
    gpus_per_node: int = Field(0, ge=0, le=72, description="0: as machines of this GPU type are usually built.")
    task: Literal["pretrain", "full", "lora", "qlora"] = "pretrain"
    tokens: str = Field("", max_length=32, description="Tokens to train on.", examples=["1.4T"])
    deadline: str = Field("", max_length=32, description="Time until the end of the training.", examples=["14d"])
    sequence: int = Field(4096, ge=1, le=10_000_000, description="Tokens of a sequence.")
    precision: Literal["fp32", "bf16", "fp8", "fp4"] = "bf16"
    optimizer: Literal["adamw", "adamw8bit", "adafactor", "lion", "muon", "sgd"] = "adamw"
    batch: str = Field(
        "", max_length=32, description="Tokens of a step; by default by the model's size.", examples=["4M"]
    )
    usd_per_gpu_hour: float = Field(
        0, ge=0, le=1000, allow_inf_nan=False, description="0: the lowest on-demand price known."
    )


class LayoutOut(ResponseModel):
    """How a training is divided among GPUs. `shard`: fsdp, zero1 or ddp; `recompute`: none, selective or full; `microbatch`:
    sequences; `microbatches`: of a step, for each data-parallel copy."""

    tensor: int
    pipeline: int
    virtual_stages: int
    context: int
    expert: int
    data: int
    microbatch: int
    microbatches: int
    recompute: str
    shard: str


class MemoryOut(ResponseModel):
    """Bytes of one GPU by part. `context`: driver and libraries; `gpu`: all its memory."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    fragmentation: float
    context: float
    total: float
    gpu: float


class CheckpointOut(ResponseModel):
    """Checkpoints: bytes, seconds of a write, seconds between two, interruptions a day, and the share of the time that writes
    and interruptions take."""

    size_bytes: float
    write_s: float
    interval_s: float
    interruptions_a_day: float
    lost_share: float


class SizeOut(ResponseModel):
    """The training: its layout, memory, throughput, time and price. `tokens_s`: of all GPUs, true within `band` (a share of it);
    `outside`: what no published run has that the prediction was fitted to. Figures of the whole training are null without
    `tokens`; `late_s` without a deadline that is missed. `script`: a batch script with the layout; `sources`: formula and source
    by figure."""

    parameters: int
    active_parameters: int
    gpu: str
    gpus: int
    nodes: int
    layout: LayoutOut
    tokens_per_step: int
    memory_bytes: MemoryOut
    tokens_s: float
    tok_s_gpu: float
    band: float
    outside: list[str]
    mfu: float
    tokens: float | None = None
    seconds: float | None = None
    late_s: float | None = None
    gpu_hours: float | None = None
    kwh: float | None = None
    usd: float | None = None
    usd_per_gpu_hour: float | None = None
    price_origin: str | None = None
    checkpoint: CheckpointOut
    script: str
    sources: dict[str, str]
