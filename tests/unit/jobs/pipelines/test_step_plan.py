"""The plan that a pipeline's jobs get, and the results that they record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.jobs.pipelines.pipeline_file import Pipeline, read_pipeline
from headway.jobs.pipelines.step_plan import parse_result, plan_text, stored_results
from headway.jobs.submission.job_folders import UserFolders

FOLDERS = UserFolders("/scratch/ada", "/scratch/ada/.headway", "/scratch/ada/runs")


def pipeline(**fields: Any) -> Pipeline:
    steps = {
        "test": {"run": "y", "needs": ["train"], "when": "train.loss < 1"},
        "train": {"run": "x", "outputs": {"loss": {"metric": "loss"}}, "inputs": ["x.py"], **fields},
    }
    return read_pipeline({"name": "p", "steps": steps})


def settings(**fields: Any) -> str:
    return str(json.loads(plan_text(pipeline(**fields), FOLDERS, "/w"))["steps"]["train"]["settings"])


def test_plan_has_steps_in_order_with_their_conditions() -> None:
    plan = json.loads(plan_text(pipeline(), FOLDERS, "/scratch/ada/runs/p", fresh=["train"]))
    assert list(plan["steps"]) == ["train", "test"]
    assert plan["steps"]["test"]["when"] == [[[["train", "loss"], "<", 1.0]]]
    assert (plan["folder"], plan["cache"], plan["metrics"]) == (
        "/scratch/ada/runs/p",
        "/scratch/ada/.headway/pipeline-cache",
        "/scratch/ada/.headway/metrics",
    )
    assert {name: step["fresh"] for name, step in plan["steps"].items()} == {"train": True, "test": False}


def test_outputs_are_hashed_if_the_step_or_one_that_needs_it_is_cached() -> None:
    model: dict[str, Any] = {"run": "x", "outputs": {"m": {"file": "m"}}}
    steps = {
        "raw": model,
        "prepare": {**model, "needs": ["raw"]},
        "train": {**model, "needs": ["prepare"], "inputs": []},
        "test": {**model, "needs": ["train"]},
    }
    plan = json.loads(plan_text(read_pipeline({"name": "p", "steps": steps}), FOLDERS, "/w"))
    hashed = {name: step["digests"] for name, step in plan["steps"].items()}
    assert hashed == {"raw": False, "prepare": True, "train": True, "test": False}


def test_pipeline_without_outputs_has_no_plan() -> None:
    assert plan_text(read_pipeline({"name": "p", "steps": {"a": {"run": "x"}}}), FOLDERS, "/w") == ""


def test_content_of_a_step_is_command_resources_and_software() -> None:
    same = [{"time": "10"}, {"partition": "debug"}, {"team": "vision"}, {"env": {"HF_TOKEN": "other"}}]
    base = settings(env={"HF_TOKEN": "one"})
    assert {settings(**{"env": {"HF_TOKEN": "one"}, **fields}) for fields in same} == {base}
    other = [
        {"run": "z"},
        {"nodes": 2},
        {"gpus": 1},
        {"environment": "llm@2"},
        {"env": {"A": "1"}},
        {"sbatch": ["--constraint=a100"]},
        {"sbatch": ["--constraint=h100"]},
    ]
    assert len({base, *(settings(**{"env": {"HF_TOKEN": "one"}, **fields}) for fields in other)}) == len(other) + 1


def test_only_results_are_read() -> None:
    good = {"job": 3, "state": "cached", "source": 2, "outputs": {"m": {"kind": "metric", "value": "0.50"}}}
    result = parse_result(json.dumps(good).encode())
    assert result is not None
    assert (result.shown_state, result.outputs["m"].shown) == ("CACHED", "0.5")
    bad = [{"job": 3, "state": "odd"}, [], {**good, "outputs": {"m": {}}}]
    assert [parse_result(json.dumps(one).encode()) for one in bad] == [None] * 3
    assert list(stored_results({"a": good, "b": bad[0], "c": []})) == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        {"why": "a\x1b[2J"},
        {"why": "a\0"},
        {"why": "a\ud800"},
        {"outputs": {"m\x1b": {"kind": "metric", "value": "1"}}},
        {"outputs": {"m": {"kind": "file", "value": "/w/a\0"}}},
        {"outputs": {"m": {"kind": "file", "value": "/w/a", "path": "\x9b"}}},
    ],
)
def test_results_with_control_characters_are_not_read(change: dict[str, Any]) -> None:
    good = {"job": 3, "state": "done", "outputs": {}}
    assert parse_result(json.dumps({**good, **change}).encode()) is None


def test_results_with_many_nested_lists_are_not_read() -> None:
    assert parse_result(b"[" * 100_000 + b"]" * 100_000) is None
