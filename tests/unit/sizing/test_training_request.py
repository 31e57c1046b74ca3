"""Requests are answered with a layout that fits, days and prices; contradictions and what can't be are refused with a way out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.catalog.gpu_types import GPU_TYPES
from headway.errors import Refused
from headway.sizing.batch_script import batch_script
from headway.sizing.checkpoints import GPU_HOURS_PER_INTERRUPTION, plan_checkpoints
from headway.sizing.layouts import USABLE
from headway.sizing.models.model_source import shape_of_name
from headway.sizing.training_request import TrainingAnswer, TrainingRequest, answer_training, parse_duration


def answer(model: str, gpu: str = "h100", **fields: Any) -> TrainingAnswer:
    return answer_training(TrainingRequest(shape_of_name(model), **fields), GPU_TYPES[gpu])


def test_the_answer_fits_and_adds_up() -> None:
    found = answer("llama-3-8b", gpus=64, tokens="1T")
    run, sized = found.sized.best.run, found.sized
    assert sized.best.memory.total <= USABLE * run.gpu.memory_bytes
    assert run.layout.model_parallel * run.data_parallel == 64
    assert run.tokens_per_step == pytest.approx(4e6, rel=0.3)
    assert sized.seconds is not None
    assert sized.seconds * sized.tokens_s * (1 - sized.checkpoints.lost_share) == pytest.approx(1e12)
    assert found.usd == pytest.approx((sized.gpu_hours or 0) * found.price.usd if found.price else None)
    assert 0.3 < sized.mfu < 0.65


def test_without_gpus_the_fewest_that_fit_are_taken() -> None:
    few = answer("70b").sized.best.run.gpus
    assert few > 8
    with pytest.raises(Refused, match=rf"it fits with --gpus {few}, or --task lora"):
        answer("70b", gpus=8)


def test_too_small_a_batch_names_the_one_that_is_large_enough() -> None:
    with pytest.raises(Refused, match=r"no layout divides 4096 GPUs(.|\n)*it fits with --batch 16\.8M"):
        answer("1b", gpus=4096)


def test_a_deadline_decides_the_number_of_gpus() -> None:
    found = answer("llama-3-8b", tokens="200B", deadline="7d")
    assert found.sized.seconds is not None
    assert found.sized.seconds <= 7 * 86_400
    late = answer("llama-3-8b", tokens="200B", deadline="7d", gpus=8)
    assert late.late_s > 0
    assert late.in_time_gpus == found.sized.best.run.gpus


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gpus": 8, "nodes": 2}, "contradict each other: they have 16 GPUs"),
        ({"gpus": 12}, "12 GPUs are not whole nodes of 8"),
        ({"deadline": "3d"}, "a deadline needs --tokens"),
        ({"deadline": "soon", "tokens": "1T"}, "'soon' is not a time"),
        ({"deadline": "1h", "tokens": "100T"}, "no number of h100"),
        ({"tokens": "1M"}, "a step of 4,000,000 tokens is more than the 1,000,000"),
    ],
)
def test_contradictions(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        answer("8b", **fields)


def test_durations() -> None:
    assert [parse_duration(text) for text in ("36h", "14d", "6w", "1.5 d")] == [129_600, 1_209_600, 3_628_800, 129_600]


def test_adapters_fit_where_all_weights_do_not() -> None:
    assert answer("70b", gpus=8, task="lora").sized.best.run.gpus == 8
    assert answer("8b", gpu="l40s", gpus=1, task="qlora", tokens="50M").usd is not None


def test_mixtures_use_expert_parallelism_and_have_a_wider_band() -> None:
    found = answer("mixtral-8x7b", gpus=32, tokens="100B").sized
    assert found.best.run.layout.expert > 1
    assert found.band >= 0.25


@pytest.mark.parametrize("gpu", sorted(GPU_TYPES))
def test_every_gpu_type_trains_a_small_model(gpu: str) -> None:
    found = answer("1b", gpu, tokens="20B")
    assert 0.1 < found.sized.mfu < 0.7


def test_answer_for_programs_has_plain_values() -> None:
    found = answer("8b", gpus=8, tokens="10B").for_programs()
    assert found["memory_bytes"]["total"] < found["memory_bytes"]["gpu"]
    assert found["step_s"]["total"] == pytest.approx(found["tokens_per_step"] / found["tokens_s"])
    assert found["late_s"] is None


def test_checkpoint_interval_is_youngs() -> None:
    run = answer("8b", gpus=64).sized.best.run
    saved = plan_checkpoints(run, write_bytes_s=10e9)
    assert saved.size_bytes == pytest.approx(14 * run.shape.parameters)
    assert saved.interval_s**2 == pytest.approx(2 * saved.write_s * GPU_HOURS_PER_INTERRUPTION / 64 * 3600)
    assert plan_checkpoints(replace(run, gpus=6400)).interruptions_a_day == pytest.approx(
        100 * saved.interruptions_a_day
    )


def test_batch_script_has_the_layout() -> None:
    script = batch_script(answer("70b", gpus=64, tokens="100B").sized)
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=70b\n#SBATCH --nodes=8\n#SBATCH --gpus-per-node=8\n")
    assert "--group-query-attention --num-query-groups 8" in script
    assert "--train-iters" in script
    assert script.rstrip().endswith('"$@"')
