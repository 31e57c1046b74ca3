"""Memory follows the formulas of its sources, and all published runs fit into their GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.sizing.memory import activation_bytes, training_memory
from headway.sizing.run_rows import published_runs
from headway.sizing.training_run import OPTIMIZERS
from tests.unit.sizing.test_step_time import run_of

GPT3: dict[str, object] = {
    "model": "gpt3-175b", "seq": 2048, "gpus": 64, "gpu": "a100", "tp": 8, "pp": 8, "mbs": 1, "m": 64, "attention": "unfused",
}  # fmt: skip


def test_published_runs_fit_into_their_gpus() -> None:
    shares = [training_memory(one.run).total / one.run.gpu.memory_bytes for one in published_runs()]
    assert max(shares) <= 1
    assert sorted(shares)[len(shares) // 2] > 0.6  # most of them had the largest microbatch that fits


def test_activations_of_a_layer_are_those_of_korthikanti() -> None:
    """Equation 2 of 2205.05198 for GPT-3 with 8-way tensor parallelism: s b h (10 + 24/8 + 5 a s / (8 h)); equation 4 with
    sequence parallelism."""
    run = run_of(**GPT3)
    tensor = replace(run, layout=replace(run.layout, sequence_parallel=False))
    scores = 5 * 96 * 2048 / 12288
    assert activation_bytes(tensor) / 96 == pytest.approx(2048 * 12288 * (10 + 24 / 8 + scores / 8))
    assert activation_bytes(run) / 96 == pytest.approx(2048 * 12288 * (34 + scores) / 8)


def test_states_of_adam_are_16_bytes_a_parameter() -> None:
    run = run_of(model="llama-3-8b", seq=2048, gpus=1, gpu="h200", shard="ddp")
    memory = training_memory(replace(run, layout=replace(run.layout, shard="fsdp")))
    states = memory.weights + memory.gradients + memory.optimizer
    assert states == pytest.approx(16 * run.shape.parameters, rel=0.001)


def test_sharding_divides_states() -> None:
    base: dict[str, object] = {"model": "llama-3-8b", "seq": 2048, "gpus": 8, "gpu": "h100"}
    found = {shard: training_memory(run_of(**base, shard=shard)) for shard in ("ddp", "zero1", "fsdp")}
    assert found["zero1"].optimizer == pytest.approx(found["ddp"].optimizer / 8)
    assert found["zero1"].weights == found["ddp"].weights
    assert found["fsdp"].weights < found["ddp"].weights / 4


def test_adapters_need_little_more_than_the_weights() -> None:
    run = run_of(model="llama-3-70b", seq=2048, gpus=1, gpu="h200", recompute="full")
    full, lora, qlora = (training_memory(replace(run, task=task)) for task in ("full", "lora", "qlora"))
    assert lora.optimizer < full.optimizer / 50
    assert qlora.weights < 0.35 * lora.weights
    assert qlora.total < run.gpu.memory_bytes < full.total


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_each_optimizer(optimizer: str) -> None:
    run = run_of(model="llama-3-8b", seq=2048, gpus=8, gpu="h100")
    assert 0 < training_memory(replace(run, optimizer=optimizer)).optimizer <= training_memory(run).optimizer


def test_states_of_a_mixture_are_not_divided_twice() -> None:
    """Experts are divided among data-parallel copies: all GPUs together hold 16 bytes a parameter, whatever the layout."""
    for expert in (1, 8, 64):
        run = run_of(model="deepseek-v3", seq=4096, gpus=512, gpu="h100", ep=expert, shard="fsdp", m=8)
        assert training_memory(run).optimizer * 512 == pytest.approx(12 * run.shape.parameters, rel=0.001)
