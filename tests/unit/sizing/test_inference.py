"""A service's memory is weights and KV cache, and its speed is bound by memory bandwidth."""

from __future__ import annotations

from typing import Any

import pytest

from headway.catalog.gpu_types import GPU_TYPES
from headway.sizing.inference import SizedService, cache_bytes_per_token, size_service, why_not_served
from headway.sizing.models.usual_shapes import KNOWN_SHAPES

WISH: dict[str, Any] = {"precision": "bf16", "context": 4096, "concurrency": 16}


def serve(model: str = "llama-3-70b", gpu: str = "h100", **change: Any) -> SizedService:
    found = size_service(KNOWN_SHAPES[model], GPU_TYPES[gpu], **{**WISH, **change})
    assert found is not None
    return found


def test_cache_of_llama_70b_is_320_kib_a_token() -> None:
    assert cache_bytes_per_token(KNOWN_SHAPES["llama-3-70b"]) == 320 * 1024
    assert cache_bytes_per_token(KNOWN_SHAPES["deepseek-v3"]) == 2 * 61 * 576


def test_weights_decide_the_gpus_of_a_replica() -> None:
    assert serve().gpus == 4  # 141 GB of weights and 21 GB of cache
    assert serve(precision="fp8").gpus == 2
    assert serve(gpu="mi300x").gpus == 1


def test_one_request_is_bound_by_reading_the_weights() -> None:
    one = serve("llama-3-8b", concurrency=1, context=128)
    reads = 2 * KNOWN_SHAPES["llama-3-8b"].active_parameters / GPU_TYPES["h100"].memory_bytes_s
    assert reads < one.token_s < 2 * reads


def test_more_requests_give_more_tokens_each_of_them_later() -> None:
    few, many = serve(concurrency=4, gpus=8), serve(concurrency=64, gpus=8)
    assert many.tokens_s > 4 * few.tokens_s
    assert many.token_s > few.token_s


def test_replicas_reach_the_wanted_rate() -> None:
    found = serve(tokens_s=10_000)
    assert found.replicas * found.tokens_s >= 10_000 > (found.replicas - 1) * found.tokens_s
    assert found.total_gpus == found.replicas * found.gpus


def test_what_does_not_fit_says_what_would() -> None:
    assert size_service(KNOWN_SHAPES["llama-3-70b"], GPU_TYPES["h100"], **{**WISH, "gpus": 1}) is None
    message, hint = why_not_served(
        KNOWN_SHAPES["llama-3-70b"], GPU_TYPES["h100"], **{**WISH, "gpus": 2, "concurrency": 64}
    )
    assert "does not fit on 2 h100: weights 131 GiB, KV cache 80 GiB" in message
    assert "it fits with --gpus 4, or --concurrency 6" in hint


def test_experts_that_no_token_needs_are_not_read() -> None:
    few = serve("mixtral-8x7b", concurrency=1)
    many = serve("mixtral-8x7b", concurrency=32)
    assert many.token_s > 1.5 * few.token_s


@pytest.mark.parametrize("gpu", sorted(GPU_TYPES))
def test_every_gpu_type_serves_a_small_model(gpu: str) -> None:
    assert serve("llama-3.2-1b", gpu).tokens_s > 100
