"""Conditions, and the outputs that steps declare and read."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import InvalidSpec
from headway.jobs.pipelines.pipeline_file import read_pipeline
from headway.jobs.pipelines.step_outputs import parse_condition


def test_condition_is_alternatives_of_comparisons() -> None:
    found = parse_condition("a.x >= 0.9 and a.y<b.y or b.z == -1e3")
    assert found == [[(("a", "x"), ">=", 0.9), (("a", "y"), "<", ("b", "y"))], [(("b", "z"), "==", -1000.0)]]


@pytest.mark.parametrize(
    "text", ["", "a.x", "a.x > high", "x > 1", "a.x > 1 or", "a.x => 1", "a.x > 1 and and b.y > 2"]
)
def test_other_conditions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a comparison"):
        parse_condition(text)


def test_condition_has_a_limit() -> None:
    with pytest.raises(ValueError, match="more than 20"):
        parse_condition(" or ".join(["a.x > 1"] * 21))


def document(**last: Any) -> dict[str, Any]:
    train = {"run": "x", "outputs": {"loss": {"metric": "loss"}, "model": {"file": "./out/model.pt"}}}
    return {"name": "p", "steps": {"train": train, "test": {"run": "y", "needs": ["train"], **last}}}


def test_outputs_are_read() -> None:
    found = read_pipeline(document(when="train.loss < 1", run="y {train.model} {PATH} {x.y}"))
    assert found.steps["train"].outputs["model"].file == "out/model.pt"
    assert found.passes_outputs
    assert not read_pipeline({"name": "p", "steps": {"a": {"run": "x"}}}).passes_outputs


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({"when": "train.loss"}, "steps.test.when"),
        ({"when": "train.model > 1"}, "train.model is not a metric"),
        ({"when": "train.lost > 1"}, "step train has no output lost; it has loss, model"),
        ({"when": "train.loss > 1", "needs": []}, "add train to needs"),
        ({"run": "y {train.lost}"}, "steps.test.run"),
        ({"run": "y {test.a}"}, "add test to needs"),
        ({"inputs": ["a"]}, "a step without outputs can't be cached"),
        ({"outputs": {"a": {"file": "/etc/passwd"}}}, "must be a path in the pipeline's folder"),
        ({"outputs": {"a": {"file": "a/../../b"}}}, "must be a path in the pipeline's folder"),
        ({"outputs": {"a": {"file": "a", "metric": "b"}}}, "give one of file, metric and dataset"),
        ({"outputs": {"a": {}}}, "give one of file, metric and dataset"),
        ({"outputs": {"a b": {"file": "a"}}}, "steps.test.outputs"),
        ({"outputs": {"a": {"file": "a"}}, "sbatch": ["--array=0-3"]}, "an array can't have outputs"),
        ({"outputs": {"a": {"file": "a"}}, "sbatch": ["--arr=0-3"]}, "an array can't have outputs"),
        ({"when": "train.loss < 1", "sbatch": ["-Ha0-3"]}, "an array can't have a condition"),
    ],
)
def test_faults_name_field_and_remedy(last: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_pipeline(document(**last))
    assert words in caught.value.message, caught.value.message


def test_two_outputs_with_the_same_variable_are_refused() -> None:
    made = {"run": "x", "outputs": {"a_b": {"metric": "x"}}}
    other = {"run": "x", "outputs": {"b": {"metric": "x"}}}
    steps = {"s": made, "s_a": other, "last": {"run": "y", "needs": ["s", "s_a"]}}
    with pytest.raises(InvalidSpec, match="have the same variable HEADWAY_OUTPUT_S_A_B"):
        read_pipeline({"name": "p", "steps": steps})
