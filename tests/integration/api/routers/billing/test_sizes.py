"""POST /size answers trainings, and refuses what is unknown, contradictory or does not fit."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.servers.server_fakes import Server

SIZE = "/api/v1/size"


@pytest.fixture
async def ann(server: Server) -> httpx.AsyncClient:
    return await server.client("ann")


async def test_a_training_has_layout_memory_time_and_price(ann: httpx.AsyncClient) -> None:
    body = {"model": "llama-3-8b", "gpus": 64, "tokens": "1T", "usd_per_gpu_hour": 2}
    found = (await ann.post(SIZE, json=body)).json()
    assert (found["gpu"], found["gpus"], found["nodes"]) == ("h100", 64, 8)
    assert found["memory_bytes"]["total"] < found["memory_bytes"]["gpu"]
    assert found["layout"]["data"] * found["layout"]["tensor"] * found["layout"]["pipeline"] == 64
    assert found["usd"] == pytest.approx(2 * found["gpu_hours"])
    assert found["late_s"] is None


async def test_a_config_is_a_model(ann: httpx.AsyncClient) -> None:
    config = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "vocab_size": 32000}
    assert (await ann.post(SIZE, json={"config": config, "gpus": 8})).json()["gpus"] == 8


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "give model or config"),
        ({"model": "70k"}, 400, "a model of 70,000 parameters"),
        ({"model": "8b", "gpu": "v100"}, 400, "gpu: 'v100' is not known"),
        ({"model": "70b", "gpus": 8}, 400, "70b does not fit on 8 h100"),
        ({"model": "8b", "gpu": "a100", "precision": "fp8"}, 400, "a100 has no fp8"),
        ({"config": {"hidden_size": 8}}, 422, "num_hidden_layers"),
        ({"model": "8b", "gpus": -1}, 422, "gpus"),
    ],
)
async def test_what_cannot_be_sized(ann: httpx.AsyncClient, body: dict[str, Any], status: int, text: str) -> None:
    answer = await ann.post(SIZE, json=body)
    assert answer.status_code == status
    assert text in answer.text
