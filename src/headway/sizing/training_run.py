"""One training as the step time and the memory depend on it: model, GPUs, layout, precision."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.catalog.gpu_types import GpuType
from headway.sizing.models.model_shape import ModelShape

TASKS = ("pretrain", "full", "lora", "qlora")
PRECISIONS = ("fp32", "bf16", "fp8", "fp4")
# Bytes of optimizer state for each trained parameter, with the master weights in fp32.
OPTIMIZERS = {"adamw": 12.0, "adamw8bit": 6.0, "adafactor": 4.5, "lion": 8.0, "muon": 8.0, "sgd": 8.0}
_ADAPTER_SHARE = 0.003  # adapter parameters of LoRA for each weight: about rank 16 in all matrices
RECOMPUTE = ("none", "selective", "full")
# Programs that compute attention. FlashAttention-2 (2307.08691) reaches about twice the speed of the first one, version 3
# (2407.08608) 1.5 to 2 times that of version 2 on the H100; cuDNN's is like version 3.
ATTENTION = ("unfused", "flash1", "flash2", "flash3")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a training is divided: tensor, pipeline, context, expert parallelism, and what data-parallel copies share."""

    tensor: int = 1
    pipeline: int = 1
    virtual_stages: int = 1
    context: int = 1
    expert: int = 1
    microbatch: int = 1  # sequences
    microbatches: int = 1  # of a step, for each data-parallel copy
    recompute: str = "none"  # none | selective | full
    shard: str = "fsdp"  # fsdp: weights, gradients, optimizer; zero1: the optimizer; ddp: nothing
    sequence_parallel: bool = True  # Korthikanti et al., 2205.05198: only with tensor > 1

    @property
    def model_parallel(self) -> int:
        """GPUs of one data-parallel copy."""
        return self.tensor * self.pipeline * self.context


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training on `gpus` GPUs of one type, `gpus_per_node` to a machine."""

    shape: ModelShape
    sequence: int
    gpu: GpuType
    gpus: int
    layout: Layout = field(default_factory=Layout)
    precision: str = "bf16"  # of matrix products: fp32 | bf16 | fp8 | fp4
    gpus_per_node: int = 8
    attention: str = "flash2"
    task: str = "pretrain"
    optimizer: str = "adamw"

    @property
    def frozen(self) -> bool:
        """Whether only adapters are trained."""
        return self.task in ("lora", "qlora")

    @property
    def trained_share(self) -> float:
        """Trained parameters for each parameter."""
        return _ADAPTER_SHARE if self.frozen else 1.0

    @property
    def data_parallel(self) -> int:
        """Data-parallel copies."""
        return max(1, self.gpus // self.layout.model_parallel)

    @property
    def gathers_weights(self) -> bool:
        """Whether weights are gathered for each microbatch. Pipelines keep those of their stage, as Llama 3 did (2407.21783,
        section 3.3.2): the shard "fsdp" then shares only the optimizer."""
        return self.layout.shard == "fsdp" and self.layout.pipeline == 1

    @property
    def linked_gpus(self) -> int:
        """GPUs that the fast link joins: those of a machine, or of a rack."""
        return max(self.gpus_per_node, self.gpu.gpus_of_link if self.gpu.gpus_of_link > self.gpu.gpus_per_node else 0)

    @property
    def nodes(self) -> int:
        """Machines."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step, of all GPUs."""
        return self.data_parallel * self.layout.microbatches * self.layout.microbatch * self.sequence
