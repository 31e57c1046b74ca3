"""Seconds of one training step, by part, from the shapes of its matrix products, memory traffic and collectives.

Structure after Narayanan et al. (2104.04473: pipeline bubble, tensor-parallel all-reduces), Korthikanti et al. (2205.05198:
sequence parallelism, recomputation) and the roofline; its parameters are fitted to published runs (parameters.py)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from headway.sizing.parameters import StepParameters
from headway.sizing.training_run import TrainingRun

_ELEMENT = {"fp32": 4.0, "bf16": 2.0, "fp8": 2.0, "fp4": 2.0}  # bytes of activations in memory
_A100_INTENSITY = 312e12 / 2039e9  # FLOP per byte at which the A100's matrix products are bound by memory
_OPTIMIZER_BYTES = 30.0  # Adam reads and writes weights, master weights, gradient and two moments
_SCORE_BYTES = 13.0  # unfused attention reads and writes each score so often forward: softmax, mask, dropout, products
_BACKWARD = 2.0  # matrix products of the backward pass: two for each of the forward pass
_FLASH_SPEED = {"flash1": 1.0, "flash2": 2.0, "flash3": 3.0}  # see training_run.ATTENTION
_FLASH_BACKWARD = 2.5  # FlashAttention computes five products backward and two forward (2205.14135, 2307.08691)

# Mixtures of experts are not in the published runs. Assumptions: the expert with most tokens has 1.2 times the mean, and a
# token is sent to each of at most four machines once, as DeepSeek-V3 limits it (2412.19437, section 2.1.2).
_IMBALANCE = 1.2
_NODES_OF_TOKEN = 4


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step by part; `bubble` to `straggling` are what is added to the computation."""

    matrix_products: float
    attention: float
    memory_traffic: float
    launches: float
    tensor_parallel: float
    bubble: float
    data_parallel: float
    optimizer: float
    straggling: float

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return (
            self.matrix_products + self.attention + self.memory_traffic + self.launches + self.tensor_parallel
            + self.bubble + self.data_parallel + self.optimizer + self.straggling
        )  # fmt: skip


def tokens_per_second_per_gpu(run: TrainingRun, parameters: StepParameters) -> float:
    """Returns trained tokens per second and GPU."""
    return run.tokens_per_step / run.gpus / step_time(run, parameters).total


def step_time(run: TrainingRun, parameters: StepParameters) -> StepTime:
    """Returns the seconds of one optimizer step on the slowest pipeline stage."""
    layout, shape = run.layout, run.shape
    tokens = layout.microbatch * run.sequence / layout.context  # of one microbatch on one GPU
    layers = ceil(shape.layers / layout.pipeline)
    # Frozen weights have no gradients: one product backward instead of two.
    passes = 1 + (_BACKWARD / 2 if run.frozen else _BACKWARD) + _recomputed(run)
    products = layers * _layer_products(run, parameters, tokens) * passes
    attention = layers * _attention(run, parameters, tokens)
    traffic = layers * _traffic(run, parameters, tokens)
    head_products, head_traffic = _head(run, parameters, tokens)
    launches = layers * parameters.launch_s * passes / 3
    tensor = layers * _tensor_parallel(run, parameters, tokens)
    microbatches = layout.microbatches
    stage = products + attention + traffic + launches + tensor
    busy = microbatches * (stage + head_products + head_traffic)
    # Narayanan et al., section 2.2: (p - 1) / (v m) of the time of the microbatches.
    bubble = (layout.pipeline - 1) / layout.virtual_stages * stage
    bubble += _pipeline_transfers(run, parameters, tokens)
    exchanged = _data_parallel(run, parameters, busy)
    optimizer = _local_parameters(run) * _OPTIMIZER_BYTES / run.gpu.memory_bytes_s
    slow = parameters.straggler * log2(run.nodes) if run.nodes > 1 else 0.0
    return StepTime(
        matrix_products=microbatches * (products + head_products),
        attention=microbatches * attention,
        memory_traffic=microbatches * (traffic + head_traffic),
        launches=microbatches * launches,
        tensor_parallel=microbatches * tensor,
        bubble=bubble,
        data_parallel=exchanged,
        optimizer=optimizer,
        straggling=slow * (busy + bubble + exchanged),
    )


def _recomputed(run: TrainingRun) -> float:
    """Returns the share of the forward matrix products that is computed again. With PyTorch's FSDP, "selective" means every
    second product; in Megatron-LM only attention."""
    if run.layout.recompute == "selective" and run.gathers_weights and run.attention != "unfused":
        return 0.5
    return float(run.layout.recompute == "full")


def _product(run: TrainingRun, parameters: StepParameters, rows: float, columns: float, inner: float) -> float:
    """Returns seconds of a (rows x inner) by (inner x columns) product. Small sides reach a smaller share of the peak; the
    side of half the peak grows with the GPU's FLOP per byte of memory traffic."""
    gpu = run.gpu
    peak = gpu.peak_flops.get(run.precision, gpu.peak_flops["bf16"])
    half = parameters.half_side * (peak / gpu.memory_bytes_s / _A100_INTENSITY)
    share = gpu.matmul_share * parameters.matmul * (parameters.hopper if gpu.generation != "ampere" else 1.0)
    if peak > gpu.peak_flops["bf16"]:
        share *= parameters.low_precision
    share *= columns / (columns + half) * inner / (inner + half) * rows / (rows + half)
    moved = _ELEMENT["bf16"] * (rows * inner + inner * columns + rows * columns)
    return max(2 * rows * columns * inner / (peak * share), moved / gpu.memory_bytes_s)


def _layer_products(run: TrainingRun, parameters: StepParameters, tokens: float) -> float:
    """Returns seconds of one layer's matrix products forward, without attention scores."""
    shape, tensor = run.shape, run.layout.tensor
    inner = shape.attention_width / tensor
    keys = max(1, shape.kv_heads / tensor) * shape.head_width
    ffn = shape.ffn_width / tensor
    up = ffn * (2 if shape.gated else 1)
    found = _product(run, parameters, tokens, inner + 2 * keys, shape.width)
    found += _product(run, parameters, tokens, shape.width, inner)
    if shape.experts:
        expert = min(run.layout.expert, shape.experts)
        here = shape.experts / expert
        rows = max(1.0, tokens * shape.experts_of_token / here)
        one = _product(run, parameters, rows, up, shape.width) + _product(run, parameters, rows, shape.width, ffn)
        found += _IMBALANCE * here * one
        found += _product(run, parameters, tokens, shape.experts, shape.width)
    dense = shape.shared_experts if shape.experts else 1
    if dense:
        one = _product(run, parameters, tokens, up * dense, shape.width)
        found += one + _product(run, parameters, tokens, shape.width, ffn * dense)
    return found


def _attention(run: TrainingRun, parameters: StepParameters, tokens: float) -> float:
    """Returns seconds of one layer's scores and their products with the values, forward and backward."""
    shape, layout, gpu = run.shape, run.layout, run.gpu
    width = shape.attention_width / layout.tensor
    peak = gpu.peak_flops["bf16"]
    again = layout.recompute != "none"
    if run.attention != "unfused":  # half of the scores are masked and skipped
        speed = peak * parameters.attention * _FLASH_SPEED[run.attention]
        speed *= parameters.attention_hopper if gpu.generation != "ampere" else 1.0
        return 2 * tokens * run.sequence * width / speed * (1 + _FLASH_BACKWARD + again)
    speed = peak * gpu.matmul_share * parameters.matmul * 0.5
    forward = 4 * tokens * run.sequence * width / speed
    forward += tokens * run.sequence * shape.heads / layout.tensor * _SCORE_BYTES / gpu.memory_bytes_s
    return forward * (1 + _BACKWARD + again)


def _traffic(run: TrainingRun, parameters: StepParameters, tokens: float) -> float:
    """Returns seconds of one layer's element-wise work (norms, activations, residuals), bound by memory."""
    shape, layout = run.shape, run.layout
    whole = 1 / layout.tensor if layout.sequence_parallel else 1.0
    active = max(1, shape.experts_of_token + shape.shared_experts)
    ffn = active * shape.ffn_width * (1.5 if shape.gated else 1.0) / (4 * layout.tensor)
    elements = shape.width * (0.5 * whole + active * 0.3 * (shape.experts > 0)) + 0.5 * ffn
    passes = (3 + (layout.recompute == "full")) / 3
    return tokens * elements * parameters.element_bytes * passes / run.gpu.memory_bytes_s


def _head(run: TrainingRun, parameters: StepParameters, tokens: float) -> tuple[float, float]:
    """Returns seconds of the output matrix, and of the loss over the vocabulary."""
    shape, tensor = run.shape, run.layout.tensor
    products = 3 * _product(run, parameters, tokens, shape.vocabulary / tensor, shape.width)
    traffic = tokens * shape.vocabulary / tensor * parameters.loss_bytes / run.gpu.memory_bytes_s
    return products, traffic


def _tensor_parallel(run: TrainingRun, parameters: StepParameters, tokens: float) -> float:
    """Returns seconds of one layer's collectives of tensor, context and expert parallelism, forward and backward.
    Narayanan et al., section 3.2: an all-reduce after attention and one after the feed-forward part, in each direction."""
    shape, layout = run.shape, run.layout
    passes = 2 + (layout.recompute == "full")
    activation = tokens * shape.width * _ELEMENT["bf16"]
    found = 0.0
    if layout.tensor > 1:
        ring = 2 * (layout.tensor - 1) / layout.tensor
        found += passes * 2 * activation * ring / _speed(run, parameters, layout.tensor)
    if layout.context > 1:  # keys and values of all other ranks pass through each, mostly during the computation
        keys = tokens * 2 * shape.kv_heads * shape.head_width / layout.tensor * _ELEMENT["bf16"] * (layout.context - 1)
        found += passes * keys / _speed(run, parameters, layout.tensor * layout.context) * (1 - parameters.overlap)
    if shape.experts and layout.expert > 1:  # two all-to-alls
        outside = layout.tensor * layout.expert > run.linked_gpus
        copies = min(shape.experts_of_token, _NODES_OF_TOKEN) if outside else shape.experts_of_token
        routed = activation * copies * (layout.expert - 1) / layout.expert / layout.tensor
        seconds = passes * 2 * routed / _speed(run, parameters, layout.tensor * layout.expert)
        # Experts on other machines are usable only with programs that compute meanwhile (DeepSeek-V3, 2412.19437, section 3.2).
        found += seconds * (1 - parameters.overlap if outside else 1.0)
    return found


def _speed(run: TrainingRun, parameters: StepParameters, ranks: int) -> float:
    """Returns bytes per second and GPU of a collective among `ranks` neighbouring GPUs."""
    if ranks <= run.linked_gpus:
        return run.gpu.link_bytes_s * parameters.link
    return run.gpu.network_bytes_s * parameters.network


def _pipeline_transfers(run: TrainingRun, parameters: StepParameters, tokens: float) -> float:
    """Returns seconds in which activations travel between pipeline stages; half of them overlap with the computation."""
    layout = run.layout
    if layout.pipeline == 1:
        return 0.0
    size = tokens * run.shape.width * _ELEMENT["bf16"] / layout.tensor
    speed = run.gpu.network_bytes_s * parameters.network
    return layout.microbatches * layout.virtual_stages * 2 * size / speed * (1 - parameters.overlap)


def _local_parameters(run: TrainingRun) -> float:
    """Returns the parameters whose optimizer state one GPU updates."""
    layout = run.layout
    shards = layout.tensor * layout.pipeline if layout.shard == "ddp" else run.gpus
    return run.shape.parameters * run.trained_share / shards


def _data_parallel(run: TrainingRun, parameters: StepParameters, busy: float) -> float:
    """Returns the seconds of gathering weights and reducing gradients that the computation does not cover."""
    layout = run.layout
    copies = run.data_parallel * layout.context
    if copies == 1:
        return 0.0
    experts = run.shape.layers * run.shape.experts * run.shape.expert_parameters
    weights = run.shape.parameters - experts + experts / min(layout.expert, max(1, run.shape.experts))
    weights /= layout.tensor * layout.pipeline
    ring = (copies - 1) / copies
    in_node = max(1, min(run.linked_gpus // min(layout.tensor, run.linked_gpus), copies))
    if copies <= in_node:
        speed = run.gpu.link_bytes_s * parameters.link
    else:
        speed = run.gpu.network_bytes_s * parameters.network * in_node
    if run.gathers_weights:  # gathered forward and backward, and reduced, in each microbatch
        volume = layout.microbatches * (2 if run.frozen else 3) * 2.0 * weights
    elif layout.shard in ("fsdp", "zero1"):
        volume = (4.0 + 2.0) * weights * run.trained_share
    else:
        volume = 2 * 4.0 * weights * run.trained_share
    needed = volume * ring / speed
    covered = parameters.overlap * needed
    room = busy if run.gathers_weights else busy / layout.microbatches / max(1, layout.pipeline)
    return needed - min(covered, room)
