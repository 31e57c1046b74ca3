"""A trial's command has its parameters, as words that no shell reads."""

from __future__ import annotations

import json

from headway.jobs.sweeps.sweep_file import read_sweep
from headway.jobs.sweeps.trial_run import trial_command, trial_run


def test_placeholders_are_replaced_and_other_braces_stay() -> None:
    words = ["train.py", "--lr={lr}", "{args}", '{"a": {x}}', "--out", "run-{trial}"]
    found = trial_command(words, 7, {"lr": 0.1, "mode": "a b; rm $HOME", "amp": True})
    assert found == [
        "train.py", "--lr=0.1", "--lr=0.1", "--mode=a b; rm $HOME", "--amp=true", '{"a": {x}}', "--out", "run-7",
    ]  # fmt: skip


def test_value_that_looks_like_a_placeholder_is_not_replaced_again() -> None:
    assert trial_command(["{a}"], 1, {"a": "{b}", "b": "x"}) == ["{b}"]


def test_run_has_the_resources_of_the_file_and_the_parameters_in_its_environment() -> None:
    sweep = read_sweep(
        {"name": "lr", "run": "python t.py", "metric": {"name": "loss"}, "parameters": {"lr": [0.1]}, "trials": 1,
         "gpus": 2, "time": 10, "env": {"A": "b"}}
    )  # fmt: skip
    run = trial_run(sweep, 3, {"lr": 0.1}, sweep_id="s-1", bundle="", git=None)
    assert (run.name, run.gpus, run.time, run.argv) == ("lr-3", 2, "10", ["python", "t.py"])
    assert (run.env["A"], run.env["HEADWAY_SWEEP"], run.env["HEADWAY_TRIAL"]) == ("b", "s-1", "3")
    assert json.loads(run.env["HEADWAY_PARAMETERS"]) == {"lr": 0.1}
