"""Serving a model: memory of weights and KV cache, tokens per second, replicas.

Decoding reads all active weights and the cache of each request for every token, so memory bandwidth bounds it (Pope et al.,
2211.05102, section 2). Not fitted to measurements."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from headway.catalog.gpu_types import GpuType
from headway.sizing.models.model_shape import ModelShape

BAND = 0.4  # half width: no measured service is in the data
_USABLE = 0.90  # of a GPU's memory, as servers of language models take
_BANDWIDTH_SHARE = 0.70  # of the data sheet's memory bandwidth, that decoding reaches: an assumption
_COMPUTE_SHARE = 0.5  # of the peak, that reading a prompt reaches: an assumption
_LAYER_S = 4e-6  # of launches and synchronisation of a layer with its two all-reduces
_CONTEXT_BYTES = 2e9
_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.56}  # of a weight; 4 bits with their scales


@dataclass(frozen=True, slots=True)
class SizedService:
    """One replica of a model, and how many there must be. Bytes are of one GPU."""

    shape: ModelShape
    gpu: GpuType
    precision: str
    context: int
    concurrency: int  # requests at a time of one replica
    gpus: int  # of one replica
    weights_bytes: float
    cache_bytes: float
    most_requests: int  # that fit at a time
    tokens_s: float  # of one replica, all requests together
    token_s: float  # between two tokens of a request
    prompt_s: float  # for a prompt of `context` tokens
    replicas: int

    @property
    def total_gpus(self) -> int:
        """GPUs of all replicas."""
        return self.gpus * self.replicas

    def for_programs(self) -> dict[str, object]:
        """Returns the answer as plain values: bytes of one GPU, seconds, shares."""
        return {
            "model": {**asdict(self.shape), "parameters": self.shape.parameters}, "gpu": self.gpu.name, "gpus": self.gpus,
            "replicas": self.replicas, "total_gpus": self.total_gpus, "precision": self.precision, "context": self.context,
            "concurrency": self.concurrency, "weights_bytes": self.weights_bytes, "cache_bytes": self.cache_bytes,
            "most_requests": self.most_requests, "tokens_s": self.tokens_s, "band": BAND, "token_s": self.token_s,
            "prompt_s": self.prompt_s,
        }  # fmt: skip


def cache_bytes_per_token(shape: ModelShape) -> float:
    """Returns bytes of keys and values of one token in all layers, in bf16."""
    return 2.0 * shape.layers * shape.cache_width


def size_service(
    shape: ModelShape,
    gpu: GpuType,
    *,
    precision: str,
    context: int,
    concurrency: int,
    tokens_s: float = 0,
    gpus: int = 0,
) -> SizedService | None:
    """Returns the replica with the fewest GPUs (or `gpus`) that holds `concurrency` requests, and the replicas for `tokens_s`
    together; None if no machine of these GPUs holds the model."""
    for count in (gpus,) if gpus else (1, 2, 4, 8, 16, 32):
        usable = _USABLE * gpu.memory_bytes - _CONTEXT_BYTES
        weights = shape.parameters * _BYTES[precision] / count
        request = cache_bytes_per_token(shape) * context / count
        most = int((usable - weights) / request) if usable > weights else 0
        if most < concurrency:
            continue
        token = _token_seconds(shape, gpu, precision, context, concurrency, count)
        speed = concurrency / token
        replicas = max(1, -(-int(tokens_s) // max(1, int(speed)))) if tokens_s else 1
        flops = 2 * shape.active_parameters + 2 * shape.layers * shape.attention_width * context
        prompt = context * flops / (count * gpu.peak_flops.get(precision, gpu.peak_flops["bf16"]) * _COMPUTE_SHARE)
        return SizedService(
            shape,
            gpu,
            precision,
            context,
            concurrency,
            count,
            weights,
            request * concurrency,
            most,
            speed,
            token,
            prompt,
            replicas,
        )
    return None


def _token_seconds(shape: ModelShape, gpu: GpuType, precision: str, context: int, requests: int, gpus: int) -> float:
    touched = 1.0
    if shape.experts:  # a batch touches most experts, one request only its own
        touched = 1 - (1 - shape.experts_of_token / shape.experts) ** requests
    layers: float = shape.layers * (
        shape.attention_parameters + shape.shared_experts * shape.expert_parameters * bool(shape.experts)
    )
    layers += shape.layers * shape.expert_parameters * (touched * shape.experts if shape.experts else 1.0)
    read = (layers + shape.vocabulary * shape.width) * _BYTES[precision]
    read += requests * context * cache_bytes_per_token(shape)
    memory = read / gpus / (gpu.memory_bytes_s * _BANDWIDTH_SHARE)
    peak = gpu.peak_flops.get(precision, gpu.peak_flops["bf16"])
    compute = requests * 2 * shape.active_parameters / gpus / (peak * _COMPUTE_SHARE)
    exchanged = 0.0
    if gpus > 1:
        link = gpu.link_bytes_s if gpus <= gpu.gpus_of_link else gpu.network_bytes_s
        exchanged = shape.layers * 2 * requests * shape.width * 2.0 * 2 / link
    return max(memory, compute) + exchanged + shape.layers * _LAYER_S * (2 if gpus > 1 else 1)


def why_not_served(
    shape: ModelShape, gpu: GpuType, *, precision: str, context: int, concurrency: int, gpus: int = 0
) -> tuple[str, str]:
    """Returns the reason why size_service found nothing, and the nearest that it would find."""
    cache = cache_bytes_per_token(shape) * context * concurrency
    message = (
        f"{shape.name} with {concurrency} requests of {context:,} tokens does not fit on {gpus or 32} {gpu.name}: weights "
        f"{shape.parameters * _BYTES[precision] / 2**30:,.0f} GiB, KV cache {cache / 2**30:,.0f} GiB"
    )
    ways = []
    if gpus and (more := size_service(shape, gpu, precision=precision, context=context, concurrency=concurrency)):
        ways.append(f"--gpus {more.gpus}")
    one = size_service(shape, gpu, precision=precision, context=context, concurrency=1, gpus=gpus or 32)
    if one and one.most_requests < concurrency:
        ways.append(f"--concurrency {one.most_requests}")
    for smaller in ("fp8", "fp4"):
        if (
            smaller in gpu.peak_flops
            and smaller != precision
            and size_service(shape, gpu, precision=smaller, context=context, concurrency=concurrency, gpus=gpus)
        ):
            ways.append(f"--precision {smaller}")
            break
    return message, f"it fits with {', or '.join(ways)}" if ways else "give a GPU with more memory, or a smaller model"
