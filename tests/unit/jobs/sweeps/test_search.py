"""Trials of a grid are all combinations; those of a random search are the same each time, and within their ranges."""

from __future__ import annotations

from typing import Any

from headway.jobs.sweeps.search import trial_parameters
from headway.jobs.sweeps.sweep_file import Sweep, read_sweep


def sweep(**change: Any) -> Sweep:
    base = {"name": "s", "run": "x", "metric": {"name": "loss"}, "trials": 200}
    return read_sweep({**base, **change})


def test_grid_has_each_combination_once() -> None:
    grid = sweep(method="grid", trials=None, parameters={"a": [1, 2], "b": {"min": 0, "max": 2, "step": 1}, "c": "x"})
    found = [trial_parameters(grid, number) for number in range(1, grid.trial_count() + 1)]
    assert [(one["a"], one["b"]) for one in found] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert {one["c"] for one in found} == {"x"}


def test_random_values_are_within_their_ranges_and_the_same_again() -> None:
    search = sweep(
        parameters={
            "lr": {"min": 1e-5, "max": 0.1, "log": True},
            "layers": {"min": 1, "max": 4},
            "width": {"min": 1, "max": 64, "log": True},
            "drop": {"min": 0.0, "max": 0.5},
            "batch": [16, 32],
        }
    )
    found = [trial_parameters(search, number) for number in range(1, 201)]
    assert found == [trial_parameters(search, number) for number in range(1, 201)]
    assert all(1e-5 <= float(one["lr"]) <= 0.1 for one in found)
    assert 60 < sum(float(one["lr"]) < 1e-3 for one in found) < 140
    assert {one["layers"] for one in found} == {1, 2, 3, 4}
    widths = {one["width"] for one in found}
    assert all(isinstance(width, int) for width in widths)
    assert widths <= set(range(1, 65))
    assert {one["batch"] for one in found} == {16, 32}
    assert all(isinstance(one["drop"], float) for one in found)


def test_another_parameter_does_not_change_the_values_of_the_first() -> None:
    one = {"lr": {"min": 0.0, "max": 1.0}}
    assert (
        trial_parameters(sweep(parameters=one), 3)["lr"]
        == trial_parameters(sweep(parameters={"x": [1, 2], **one}), 3)["lr"]
    )
    assert trial_parameters(sweep(parameters=one), 3) != trial_parameters(sweep(parameters=one, seed=1), 3)
