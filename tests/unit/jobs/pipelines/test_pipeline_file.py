"""A pipeline file is parsed, and its errors are reported."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Fault, InvalidSpec
from headway.jobs.pipelines.pipeline_file import MAX_STEPS, read_pipeline
from headway.validation.error_paths import MOST_FAULTS
from headway.validation.yaml_parser import parse_yaml


def steps(**wanted: list[str]) -> dict[str, Any]:
    return {"name": "p", "steps": {name: {"run": "true", "needs": needs} for name, needs in wanted.items()}}


def test_example_pipeline_is_valid() -> None:
    text = (Path(__file__).parents[4] / "examples" / "rlhf.yaml").read_text()
    found = read_pipeline(parse_yaml(text))
    assert found.steps_in_order() == ["sft", "reward", "policy", "compare"]
    assert found.steps_after({"reward"}) == {"reward", "policy", "compare"}


def test_steps_are_ordered_after_their_needs() -> None:
    found = read_pipeline(steps(c=["a", "b"], a=[], b=["a"]))
    assert found.steps_in_order() == ["a", "b", "c"]
    assert found.steps_after({"b"}) == {"b", "c"}


def test_defaults_apply_to_fields_a_step_does_not_set() -> None:
    document = {
        "name": "p", "defaults": {"gpus": 2, "env": {"A": "1", "B": "1"}},
        "steps": {"a": {"run": "x"}, "b": {"run": ["y", "z"], "gpus": 0, "env": {"B": "2"}}},
    }  # fmt: skip
    found = read_pipeline(document).steps
    assert (found["a"].gpus, found["a"].env) == (2, {"A": "1", "B": "1"})
    assert (found["b"].gpus, found["b"].env, found["b"].run) == (0, {"A": "1", "B": "2"}, ["y", "z"])


def test_run_string_is_split_into_words_without_shell_expansion() -> None:
    found = read_pipeline({"name": "p", "steps": {"a": {"run": "x 'a b' $HOME ; rm"}}})
    assert found.steps["a"].run == ["x", "a b", "$HOME", ";", "rm"]


def test_all_pipeline_faults_are_reported_at_once() -> None:
    document = {
        "name": "a b",
        "steps": {
            "x": {"run": "true", "gpuss": 1, "needs": ["nobody"]},
            "y": {"run": "'", "needs": ["z"]},
            "z": {"needs": ["y"], "nodes": 0},
        },
    }
    with pytest.raises(InvalidSpec) as caught:
        read_pipeline(document)
    assert caught.value.message.startswith("the pipeline file has ")
    for part in (
        "name:",
        "steps.x.gpuss",
        "gpus?",
        "unknown step 'nobody'",
        "steps.y.run",
        "steps.z.run",
        "steps.z.nodes",
        "depend on each other",
    ):
        assert part in caught.value.message, caught.value.message


@pytest.mark.parametrize("document", [{}, {"steps": []}, {"name": "p", "steps": {"a": None}}, {"name": 1, "steps": 2}])
def test_invalid_pipeline_documents_are_refused(document: Any) -> None:
    with pytest.raises(InvalidSpec, match="fault"):
        read_pipeline(document)


def _refused(document: dict[str, Any]) -> list[Fault]:
    with pytest.raises(InvalidSpec) as caught:
        read_pipeline({"name": "p", **document})
    assert sum(len(fault.message) + len(fault.hint) for fault in caught.value.faults) < 100_000
    return caught.value.faults


def test_oversized_pipeline_parts_are_refused_with_few_faults() -> None:
    """Each of these took the server minutes, or all of its memory."""
    names = [f"s{number}" for number in range(20_000)]
    chain = {name: {"run": "x", "needs": [after]} for name, after in pairwise(names)}
    wrong = {name: {"rnu": "x", "needs": ["nobody"]} for name in names}
    small = {name: {"run": "x"} for name in names[:MAX_STEPS]}
    for steps in (chain, wrong):
        assert [one.path for one in _refused({"steps": steps})] == ["steps"]
    assert [one.path for one in _refused({"steps": {"a": {"run": ["x"] * 400_000}}})] == [""]
    assert [one.path for one in _refused({"defaults": {"env": {"A": "x" * 40_000}}, "steps": small})] == ["defaults"]
    assert len(_refused({"steps": {"a": {"run": "x", **dict.fromkeys(names)}}})) == MOST_FAULTS
    assert [one.path for one in _refused({"steps": {"a": {"run": "x", "needs": names}}})] == ["steps.a.needs"]


def test_unknown_needs_are_limited_and_hint_at_existing_steps() -> None:
    names = [f"s{number}" for number in range(MAX_STEPS)]
    found = _refused({"steps": {name: {"run": "x", "needs": [f"{name}x"] * MAX_STEPS} for name in names}})
    assert len(found) == MOST_FAULTS
    assert found[0].hint == "steps: s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, ..."
