"""A sweep file is read with short forms, and every fault has its path."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import InvalidSpec
from headway.jobs.sweeps.sweep_file import MAX_TRIALS, read_sweep

SWEEP: dict[str, Any] = {
    "name": "lr",
    "run": "python train.py --lr {lr}",
    "method": "random",
    "metric": {"name": "loss"},
    "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
    "trials": 8,
}


def test_short_forms_of_parameters_are_a_value_and_a_list() -> None:
    sweep = read_sweep({**SWEEP, "method": "grid", "trials": None, "parameters": {"lr": [0.1, 0.01], "batch": 32}})
    assert (sweep.parameters["lr"].values, sweep.parameters["batch"].value) == ([0.1, 0.01], 32)
    assert sweep.trial_count() == 2


def test_range_with_a_step_lists_its_values_without_binary_noise() -> None:
    sweep = read_sweep({**SWEEP, "parameters": {"drop": {"min": 0.0, "max": 0.3, "step": 0.1}}})
    assert sweep.parameters["drop"].listed() == [0.0, 0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"parameters": {"lr": {"min": 0.1}}}, "parameters.lr"),
        ({"parameters": {"lr": {"min": 1, "max": 1}}}, "parameters.lr"),
        ({"parameters": {"lr": {"min": 0, "max": 1, "log": True}}}, "parameters.lr"),
        ({"parameters": {"lr": {"min": 1, "max": 2, "values": [1]}}}, "parameters.lr"),
        ({"method": "grid"}, "parameters.lr"),
        ({"trials": None}, "trials"),
        ({"trials": MAX_TRIALS + 1}, "trials"),
        ({"method": "grid", "trials": None, "parameters": {n: list(range(30)) for n in "abc"}}, "trials"),
        ({"early_stopping": {"min_step": 9, "max_step": 9}}, "early_stopping.max_step"),
        ({"env": {"HF_TOKEN": "hf_abcdefgh12345678"}}, "env.HF_TOKEN"),
        ({"metric": {"name": "loss", "goal": "lower"}}, "metric.goal"),
        ({"paralel": 3}, "paralel"),
    ],
)
def test_fault_has_its_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_sweep({**SWEEP, **change})
    assert path in [fault.path for fault in caught.value.faults]


def test_rungs_grow_by_eta_below_max_step() -> None:
    sweep = read_sweep({**SWEEP, "early_stopping": {"min_step": 10, "max_step": 270, "eta": 3}})
    assert sweep.early_stopping is not None
    assert sweep.early_stopping.rungs() == [10, 30, 90]
