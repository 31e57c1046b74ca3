"""The gates file is read with all faults at once."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import InvalidSpec
from headway.jobs.promotions.gates_file import MOST_JOBS, gate_job_run, read_gates, with_required

FILE: dict[str, Any] = {
    "jobs": {"evaluate": {"run": "python3 evaluate.py --part 'held out'", "gpus": 1, "time": 10}},
    "gates": {
        "accuracy": {"metric": "accuracy", "min": 0.9},
        "held-out": {"metric": "accuracy", "job": "evaluate", "min": 0.9, "max": 0.99},
        "repeat": {"rerun": "loss", "tolerance": 0.01},
        "licence": {"approval": "lead"},
        "budget": {"max_usd": 20},
    },
}


def faults(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as refused:
        read_gates(document)
    return {fault.path: fault.message for fault in refused.value.faults}


def test_jobs_are_those_that_gates_read() -> None:
    gates = read_gates(FILE)
    assert gates.job_names() == ["evaluate", "rerun"]
    assert read_gates({}).job_names() == []


def test_job_finds_the_model_in_its_environment_and_is_charged_to_the_models_team() -> None:
    job = read_gates(FILE).jobs["evaluate"]
    run = gate_job_run(job, "evaluate", model="iris", version=3, team="red", bundle="a" * 64, git=None)
    assert run.argv == ["python3", "evaluate.py", "--part", "held out"]
    assert (run.name, run.team, run.gpus, run.time, run.bundle) == ("gate-evaluate", "red", 1, "10", "a" * 64)
    assert run.env == {
        "HEADWAY_MODEL": "iris",
        "HEADWAY_MODEL_VERSION": "3",
        "HEADWAY_MODEL_URI": "models:/iris/3",
    }


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ({}, "give one of metric, rerun, approval and max_usd"),
        ({"metric": "a", "min": 1, "approval": "lead"}, "give one of metric, rerun, approval and max_usd"),
        ({"metric": "a"}, "give min, max or both"),
        ({"metric": "a", "min": 2, "max": 1}, "min must not be above max"),
        ({"approval": "lead", "min": 1}, "job, min and max belong to metric"),
        ({"rerun": "loss"}, "give rerun together with tolerance"),
        ({"approval": "lead", "tolerance": 0.1}, "give rerun together with tolerance"),
    ],
)
def test_gate_is_of_one_kind(gate: dict[str, Any], message: str) -> None:
    assert message in faults({"gates": {"one": gate}})["gates.one"]


def test_all_faults_are_told_at_once() -> None:
    found = faults(
        {
            "jobs": {
                "rerun": {"run": "x"},
                "unused": {"run": "x"},
                "evaluate": {"run": "x", "env": {"API_TOKEN": "hw_1234567890abcdefghijkl"}},
            },
            "gates": {
                "one": {"metric": "a", "min": 1, "job": "evalute"},
                "two": {"metric": "a", "min": 1, "job": "evaluate"},
            },
        }
    )
    assert found["gates.one.job"] == "unknown job evalute"
    assert found["jobs.rerun"] == "is the name of the source job's rerun"
    assert found["jobs.unused"] == "no gate reads a metric of this job"
    assert "looks like a secret" in found["jobs.evaluate.env.API_TOKEN"]


def test_own_and_required_gates_have_one_limit() -> None:
    def gates(first: str, number: int) -> Any:
        names = [f"{first}{one}" for one in range(number)]
        return read_gates(
            {
                "jobs": {name: {"run": "x"} for name in names},
                "gates": {name: {"metric": "m", "job": name, "min": 1} for name in names},
            }
        )

    assert len(with_required(gates("a", 5), gates("b", 5)).jobs) == MOST_JOBS
    with pytest.raises(InvalidSpec) as error:
        with_required(gates("a", 6), gates("b", 5))
    (fault,) = error.value.faults
    assert (fault.path, fault.message) == ("jobs", "are 11 together with those that the alias requires")


def test_unknown_fields_and_roles_are_refused() -> None:
    found = faults({"gates": {"one": {"approval": "member"}, "two": {"metric": "a", "minimum": 1}}, "gate": {}})
    assert {"gate", "gates.one.approval", "gates.two.minimum"} <= set(found)
