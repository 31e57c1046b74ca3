"""The layout of a training that fits into memory and is fastest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headway.sizing.memory import Memory, training_memory
from headway.sizing.parameters import StepParameters
from headway.sizing.step_time import StepTime, step_time
from headway.sizing.training_run import Layout, TrainingRun

USABLE = 0.94  # of a GPU's memory: the driver and the allocator keep the rest
_BATCH_TOLERANCE = 0.26  # how far the batch of a layout may be from the wanted one
_MICROBATCHES = (1, 2, 4, 8, 16, 32)
_UNEVEN_LAYERS = 6  # layers of a stage from which on one more on some stages is acceptable
_LEAST_CONTEXT = 2048  # tokens of a sequence on one GPU below which context parallelism is not worth it


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout with its memory and step time."""

    run: TrainingRun
    memory: Memory
    step: StepTime

    @property
    def tokens_s_gpu(self) -> float:
        """Trained tokens per second and GPU."""
        return self.run.tokens_per_step / self.run.gpus / self.step.total


def fastest_layout(run: TrainingRun, batch_tokens: float, parameters: StepParameters) -> Candidate | None:
    """Returns the fastest layout of a training on its GPUs with about `batch_tokens` a step that fits; None if none does."""
    best: Candidate | None = None
    for tried in _layouts(run, batch_tokens):
        memory = training_memory(tried)
        if memory.total > USABLE * run.gpu.memory_bytes:
            continue
        found = Candidate(tried, memory, step_time(tried, parameters))
        if best is None or found.tokens_s_gpu > best.tokens_s_gpu * 1.001:
            best = found
    return best


def least_memory(run: TrainingRun, batch_tokens: float) -> float:
    """Returns the fewest bytes of a GPU that any layout needs."""
    return min((training_memory(tried).total for tried in _layouts(run, batch_tokens)), default=float("inf"))


def _layouts(run: TrainingRun, batch_tokens: float) -> Iterator[TrainingRun]:
    shape, gpus = run.shape, run.gpus
    sequences = max(1.0, batch_tokens / run.sequence)
    for tensor in _divisors(min(run.linked_gpus, gpus), shape.heads):
        if gpus % tensor:
            continue
        for pipeline in _pipelines(run, gpus // tensor):
            for context in _contexts(run, gpus // tensor // pipeline):
                copies = gpus // (tensor * pipeline * context)
                if tensor * pipeline * context * copies != gpus:
                    continue
                for microbatch in _MICROBATCHES:
                    steps = max(1, round(sequences / copies / microbatch))
                    if abs(steps * copies * microbatch / sequences - 1) > _BATCH_TOLERANCE and sequences > 1:
                        continue
                    if pipeline > 1 and steps < pipeline:
                        continue
                    for layout in _variants(run, tensor, pipeline, context, copies, microbatch, steps):
                        yield replace(run, layout=layout)


def _variants(
    run: TrainingRun, tensor: int, pipeline: int, context: int, copies: int, microbatch: int, steps: int
) -> Iterator[Layout]:
    shape = run.shape
    virtual = 1
    if pipeline > 1 and steps % pipeline == 0:  # what interleaving needs in Megatron-LM
        virtual = max(v for v in range(1, 9) if shape.layers % (pipeline * v) == 0 or v == 1)
    experts = [1]
    if shape.experts:
        experts = [
            each for each in (1, 2, 4, 8, 16, 32, 64) if shape.experts % each == 0 and copies * context % each == 0
        ]
    for recompute in ("none", "full"):
        for shard in ("zero1",) if pipeline > 1 else ("fsdp", "zero1"):
            for expert in experts:
                yield Layout(tensor, pipeline, virtual, context, expert, microbatch, steps, recompute, shard)


def _divisors(most: int, heads: int) -> list[int]:
    return [each for each in (1, 2, 4, 8) if each <= most and heads % each == 0]


def _pipelines(run: TrainingRun, most: int) -> list[int]:
    layers = run.shape.layers
    return [
        each
        for each in range(1, min(64, layers, most) + 1)
        if most % each == 0 and (layers % each == 0 or layers // each >= _UNEVEN_LAYERS)
    ]


def _contexts(run: TrainingRun, most: int) -> list[int]:
    return [
        each
        for each in (1, 2, 4, 8, 16)
        if most % each == 0 and (each == 1 or run.sequence / each >= 2 * _LEAST_CONTEXT)
    ]
