"""The step time follows the published runs, and changes with the layout as collectives and bubbles do."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from headway.catalog.gpu_types import GPU_TYPES
from headway.sizing.parameters import shipped_calibration
from headway.sizing.run_rows import published_runs, training_run
from headway.sizing.step_time import step_time, tokens_per_second_per_gpu
from headway.sizing.training_run import TrainingRun

PARAMETERS = shipped_calibration().parameters


def run_of(**cells: object) -> TrainingRun:
    """Returns the training of a row."""
    return training_run({name: str(value) for name, value in cells.items()})


def speed(run: TrainingRun) -> float:
    return tokens_per_second_per_gpu(run, PARAMETERS)


def test_published_runs() -> None:
    sizes = [abs(speed(one.run) / one.tokens_s_gpu - 1) for one in published_runs()]
    assert len(sizes) == 148
    assert statistics.median(sizes) < 0.04
    assert statistics.quantiles(sizes, n=10)[8] < 0.1


def test_the_shipped_fit_was_held_against_rows_and_sources_that_it_did_not_see() -> None:
    errors = shipped_calibration().errors
    assert errors["by_rows"] <= 0.08
    assert errors["by_source"] <= 0.15


def test_more_microbatches_make_the_bubble_smaller() -> None:
    few = run_of(model="llama-3-70b", seq=4096, gpus=64, gpu="h100", tp=8, pp=8, m=8)
    many = replace(few, layout=replace(few.layout, microbatches=64))
    shares = [step_time(run, PARAMETERS).bubble / step_time(run, PARAMETERS).total for run in (few, many)]
    assert shares[0] == pytest.approx(0.45, abs=0.1)  # 7 / 15
    assert shares[1] < 0.15


@pytest.mark.parametrize(("worse", "better"), [("full", "selective"), ("selective", "none"), ("full", "none")])
def test_recomputation_costs_time(worse: str, better: str) -> None:
    base: dict[str, object] = {"model": "llama-3-8b", "seq": 8192, "gpus": 8, "gpu": "h100", "mbs": 1}
    assert speed(run_of(**base, recompute=worse)) < speed(run_of(**base, recompute=better))


def test_tensor_parallelism_across_machines_is_slow() -> None:
    inside = run_of(model="llama-3-70b", seq=4096, gpus=64, gpu="h100", tp=8, m=8, mbs=1)
    assert speed(replace(inside, layout=replace(inside.layout, tensor=16))) < 0.7 * speed(inside)


def test_faster_gpus_are_faster() -> None:
    base: dict[str, object] = {"model": "llama-3-8b", "seq": 8192, "gpus": 8, "mbs": 1, "m": 4}
    speeds = {name: speed(run_of(**base, gpu=name)) for name in GPU_TYPES}
    order = ["a10", "l40s", "a100", "h100", "h200", "b200"]
    assert [speeds[name] for name in order] == sorted(speeds[name] for name in order)
    assert speeds["a100"] < speeds["mi300x"] < speeds["b200"]


def test_fp8_is_faster_by_less_than_its_peak() -> None:
    base: dict[str, object] = {
        "model": "llama-3-70b",
        "seq": 4096,
        "gpus": 64,
        "gpu": "h100",
        "tp": 4,
        "pp": 4,
        "m": 32,
    }
    assert 1.1 < speed(run_of(**base, precision="fp8")) / speed(run_of(**base)) < 1.8


def test_no_run_is_faster_than_the_peak() -> None:
    for model in ("llama-3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "llama-3-405b"):
        for gpu in GPU_TYPES.values():
            run = run_of(model=model, seq=4096, gpus=64, gpu=gpu.name, mbs=1, m=4)
            assert 0 < speed(run) * 6 * run.shape.active_parameters < gpu.peak_flops["bf16"]
