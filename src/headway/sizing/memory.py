"""Bytes of one GPU's memory by part, in training.

Activations after Korthikanti et al. (2205.05198, sections 4 and 5), extended to grouped queries, gated feed-forward parts and
experts; sharding of weights, gradients and optimizer after ZeRO (1910.02054)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from headway.sizing.training_run import OPTIMIZERS, TrainingRun

_ACTIVATION_BYTES = 2  # bf16
_CONTEXT_BYTES = 1.0e9  # CUDA context and libraries, before the first tensor
_COLLECTIVE_BYTES = 0.8e9  # buffers of NCCL, with more than one GPU
_FRAGMENTATION = 0.04  # of what the allocator gives out and takes back in each step
_LOGIT_BYTES = 4  # of a token and word: logits and their gradient in bf16, as fused losses keep them
_SELECTIVE_SHARE = (
    0.6  # of activations that PyTorch's selective checkpointing of every second product keeps: an assumption
)
_QUANTIZED_BYTES = 0.53  # of a 4-bit weight with its constants (QLoRA, 2305.14314, section 3)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU, of the GPU that needs most."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    fragmentation: float
    context: float

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.logits
            + self.fragmentation
            + self.context
        )


def training_memory(run: TrainingRun) -> Memory:
    """Returns the memory of one GPU of the first pipeline stage, which holds most activations."""
    shape, layout = run.shape, run.layout
    dense, experts = _stage_parameters(run)
    stage = dense + experts
    copies = run.data_parallel * layout.context
    expert_copies = max(
        1.0, copies / min(layout.expert, max(1, shape.experts))
    )  # experts are divided among the copies already
    kept = dense / copies + experts / expert_copies  # of everything that all copies share
    held = kept if run.gathers_weights else stage
    weight_bytes = _QUANTIZED_BYTES if run.task == "qlora" else 4.0 if run.precision == "fp32" else 2.0
    gradient_bytes = 2.0 if run.gathers_weights and run.precision != "fp32" else 4.0
    weights = held * weight_bytes
    if run.gathers_weights and copies > 1:  # two layers are gathered at a time: the one that is computed, and the next
        one: float = shape.layer_parameters - shape.experts * shape.expert_parameters
        one += shape.experts * shape.expert_parameters / min(layout.expert, max(1, shape.experts))
        weights += 2 * one / layout.tensor * 2.0
    if run.frozen:
        weights += held * run.trained_share * 2.0
    optimized = stage if layout.shard == "ddp" else kept
    activations = activation_bytes(run)
    tokens = layout.microbatch * run.sequence / layout.context
    logits = tokens * shape.vocabulary / layout.tensor * _LOGIT_BYTES if layout.pipeline == 1 else 0.0
    return Memory(
        weights=weights,
        gradients=held * run.trained_share * gradient_bytes,
        optimizer=optimized * run.trained_share * OPTIMIZERS[run.optimizer],
        activations=activations,
        logits=logits,
        fragmentation=_FRAGMENTATION * (activations + logits),
        context=_CONTEXT_BYTES + (_COLLECTIVE_BYTES if run.gpus > 1 else 0.0),
    )


def activation_bytes(run: TrainingRun) -> float:
    """Returns bytes of activations that wait for the backward pass on the first pipeline stage."""
    layout = run.layout
    tokens = layout.microbatch * run.sequence / layout.context
    layers = ceil(run.shape.layers / layout.pipeline)
    # Korthikanti et al., section 4.2.3: the first stage holds p microbatches, with interleaving 1 + (p - 1) / (p v) times as
    # many.
    held: float = min(layout.pipeline, layout.microbatches)
    if layout.pipeline > 1 and layout.virtual_stages > 1:
        held *= 1 + (layout.pipeline - 1) / (layout.pipeline * layout.virtual_stages)
    one = tokens * _layer_bytes(run)
    if layout.recompute == "full":
        inputs = tokens * run.shape.width * _ACTIVATION_BYTES / (layout.tensor if layout.sequence_parallel else 1)
        return layers * held * inputs + one
    if layout.recompute == "selective" and run.gathers_weights and run.attention != "unfused":
        one *= _SELECTIVE_SHARE
    return layers * held * one


def _layer_bytes(run: TrainingRun) -> float:
    """Returns bytes that one token leaves in one layer. For a GELU layer of four times the width and no grouped queries this
    is s b h (10 + 24 / t + 5 a s / (h t)) of Korthikanti et al., equation 2."""
    shape, layout = run.shape, run.layout
    old = run.attention == "unfused"
    whole = shape.width * (10 if old else 8)  # inputs of norms and matrices; masks of dropout, which is no longer used
    split = _ACTIVATION_BYTES * shape.head_width * (2 * shape.heads + 2 * shape.kv_heads)
    parts = max(1, shape.experts_of_token + shape.shared_experts) if shape.experts else 1
    split += parts * _ACTIVATION_BYTES * shape.ffn_width * (3 if shape.gated else 2)
    if shape.experts:  # tokens are copied for each expert
        whole += parts * 2 * _ACTIVATION_BYTES * shape.width
    if old and layout.recompute != "selective":
        split += 5 * shape.heads * run.sequence
    return whole / (layout.tensor if layout.sequence_parallel else 1) + split / layout.tensor


def _stage_parameters(run: TrainingRun) -> tuple[float, float]:
    """Returns the parameters of one GPU of the first pipeline stage before sharding over data-parallel copies: all but experts,
    and experts."""
    shape, layout = run.shape, run.layout
    layers = ceil(shape.layers / layout.pipeline)
    expert = shape.experts * shape.expert_parameters
    embeddings = shape.embedding_parameters / (1 if layout.pipeline == 1 or shape.tied_embeddings else 2)
    dense = (layers * (shape.layer_parameters - expert) + embeddings) / layout.tensor
    return dense, layers * expert / layout.tensor / min(layout.expert, max(1, shape.experts))
