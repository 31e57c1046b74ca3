"""The answer to "how many GPUs for how long": layout, throughput, days, energy and money of a training."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.sizing.accuracy import expected_error
from headway.sizing.checkpoints import CheckpointPlan, plan_checkpoints
from headway.sizing.layouts import USABLE, Candidate, fastest_layout, least_memory
from headway.sizing.parameters import StepParameters
from headway.sizing.training_run import TrainingRun

_REST_OF_MACHINE = 1.25  # power of a machine by that of its GPUs
_PUE = 1.2  # power of a site by that of its machines
_NODE_COUNTS = (
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
    3072,
    4096,
)


@dataclass(frozen=True, slots=True)
class SizedTraining:
    """A training on its GPUs. Times are seconds; figures of a whole training are None without a number of tokens."""

    best: Candidate
    band: float  # half width, as a share of the throughput
    outside: tuple[str, ...]
    checkpoints: CheckpointPlan
    tokens: float | None
    seconds: float | None  # with interruptions and checkpoints

    @property
    def tokens_s(self) -> float:
        """Trained tokens per second of all GPUs."""
        return self.best.tokens_s_gpu * self.best.run.gpus

    @property
    def mfu(self) -> float:
        """Model FLOP by the peak of the precision (PaLM, 2204.02311), with half of the attention, which is causal, and without
        those of the gradients of frozen weights."""
        run = self.best.run
        causal = 6 * run.shape.layers * run.shape.attention_width * run.sequence
        flops = (run.shape.flops_per_token(run.sequence) - causal) * (2 / 3 if run.frozen else 1.0)
        return self.best.tokens_s_gpu * flops / run.gpu.peak_flops[run.precision]

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of the whole training."""
        return None if self.seconds is None else self.seconds * self.best.run.gpus / 3600

    @property
    def kwh(self) -> float | None:
        """Energy of the site: GPUs at their power limit, 25 % for the rest of the machines, PUE 1.2."""
        hours = self.gpu_hours
        return None if hours is None else hours * self.best.run.gpu.watts * _REST_OF_MACHINE * _PUE / 1000


def default_batch_tokens(parameters: float) -> float:
    """Returns a usual number of tokens of a step: GPT-3's table 2.1 (2005.14165) for small models, 4 million from 7 billion
    parameters on, 16 million from 200 billion on (Llama 3)."""
    for least, tokens in ((200e9, 16e6), (6e9, 4e6), (1e9, 1e6)):
        if parameters >= least:
            return tokens
    return 0.5e6


def size_training(
    run: TrainingRun, batch_tokens: float, parameters: StepParameters, *, tokens: float | None = None
) -> SizedTraining | None:
    """Returns the fastest way to train on the GPUs of `run`; None if no layout fits."""
    best = fastest_layout(run, batch_tokens, parameters)
    if best is None:
        return None
    band, outside = expected_error(best.run)
    checkpoints = plan_checkpoints(best.run)
    seconds = None
    if tokens is not None:
        seconds = tokens / (best.tokens_s_gpu * run.gpus) / (1 - checkpoints.lost_share)
    return SizedTraining(best, band, outside, checkpoints, tokens, seconds)


def smallest_training(
    run: TrainingRun,
    batch_tokens: float,
    parameters: StepParameters,
    *,
    tokens: float | None = None,
    within_s: float | None = None,
) -> SizedTraining | None:
    """Returns the training on the fewest machines that fits, and ends within `within_s`; None if none of up to 4,096 machines
    does."""
    for nodes in _NODE_COUNTS:
        tried = replace(run, gpus=nodes * run.gpus_per_node)
        found = size_training(tried, batch_tokens, parameters, tokens=tokens)
        if found is not None and (within_s is None or (found.seconds is not None and found.seconds <= within_s)):
            return found
    return None


def why_nothing_fits(run: TrainingRun, batch_tokens: float, parameters: StepParameters) -> tuple[str, str]:
    """Returns the reason why no layout fits, and the nearest that does."""
    least = least_memory(run, batch_tokens)
    there = USABLE * run.gpu.memory_bytes
    message = f"no layout divides {run.gpus} GPUs, {run.shape.layers} layers and a batch of {batch_tokens:,.0f} tokens"
    if least < float("inf"):
        message = (
            f"{run.shape.name} does not fit on {run.gpus} {run.gpu.name}: all layouts need at least {least / 2**30:,.0f} GiB "
            f"of a GPU, {there / 2**30:,.0f} GiB are usable"
        )
    ways = []
    least_batch = float(run.gpus * run.sequence)
    if least_batch > batch_tokens and fastest_layout(run, least_batch, parameters):
        ways.append(f"--batch {least_batch / 1e6:.3g}M")
    more = smallest_training(run, batch_tokens, parameters)
    if more is not None and more.best.run.gpus > run.gpus:
        ways.append(f"--gpus {more.best.run.gpus}")
    if run.task in ("pretrain", "full"):
        for task in ("lora", "qlora"):
            if fastest_layout(replace(run, task=task), batch_tokens, parameters):
                ways.append(f"--task {task}")
                break
        if run.optimizer == "adamw" and fastest_layout(replace(run, optimizer="adamw8bit"), batch_tokens, parameters):
            ways.append("--optimizer adamw8bit")
    if run.sequence > 2048 and fastest_layout(replace(run, sequence=2048), batch_tokens, parameters):
        ways.append("--sequence 2048")
    return message, f"it fits with {', or '.join(ways)}" if ways else "give a GPU with more memory, or a smaller model"
