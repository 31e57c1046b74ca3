"""Each kind of gate says what it wants and what it saw."""

from __future__ import annotations

from typing import Any

from headway.jobs.promotions.gate_results import Approval, GateJobState, Known, gate_results
from headway.jobs.promotions.gates_file import read_gates


def results(gates: dict[str, Any], known: Known, jobs: dict[str, Any] | None = None) -> list[tuple[str, str, str]]:
    found = gate_results(read_gates({"jobs": jobs or {}, "gates": gates}).gates, known)
    return [(one.state, one.wants, one.saw) for one in found]


def result(gate: dict[str, Any], known: Known, jobs: dict[str, Any] | None = None) -> tuple[str, str, str]:
    (found,) = results({"licence": gate}, known, jobs)
    return found


def test_metric_of_the_run() -> None:
    known = Known(run={"accuracy": 0.9, "loss": None})
    assert result({"metric": "accuracy", "min": 0.9}, known) == ("passed", "accuracy at least 0.9", "accuracy 0.9")
    assert result({"metric": "accuracy", "max": 0.5}, known) == ("failed", "accuracy at most 0.5", "accuracy 0.9")
    assert result({"metric": "accuracy", "min": 0.95, "max": 1}, known)[:2] == ("failed", "accuracy from 0.95 to 1")
    assert result({"metric": "f1", "min": 0}, known) == ("failed", "f1 at least 0", "no value of f1")
    assert result({"metric": "loss", "max": 9}, known)[2] == "no value of loss", "it is NaN"


def test_metric_of_a_job_waits_for_the_job() -> None:
    gate, jobs = {"metric": "accuracy", "min": 0.9, "job": "evaluate"}, {"evaluate": {"run": "x"}}
    run = {"accuracy": 1.0}
    assert result(gate, Known(run=run), jobs) == ("waiting", "accuracy at least 0.9", "")
    for state, metrics, expected, saw in [
        ("running", {}, "waiting", ""),
        ("done", {"accuracy": 0.8}, "failed", "accuracy 0.8"),
        ("done", {}, "failed", "no value of accuracy"),
        ("done", {"accuracy": 0.95}, "passed", "accuracy 0.95"),
    ]:
        known = Known(run=run, jobs={"evaluate": GateJobState(state, 7, metrics=metrics)})
        assert result(gate, known, jobs) == (expected, "accuracy at least 0.9", saw)
    failed = Known(run=run, jobs={"evaluate": GateJobState("failed", 7, why="exit code 1")})
    assert result(gate, failed, jobs) == ("failed", "accuracy at least 0.9", "job evaluate failed: exit code 1")


def test_rerun_may_differ_by_a_share_of_the_first_value() -> None:
    gate = {"rerun": "loss", "tolerance": 0.1}
    for value, expected in [(2.2, "passed"), (1.8, "passed"), (2.3, "failed")]:
        known = Known(run={"loss": 2.0}, jobs={"rerun": GateJobState("done", 8, metrics={"loss": value})})
        assert result(gate, known) == (expected, "loss from 1.8 to 2.2", f"loss {value:.6g}")
    negative = Known(run={"loss": -2.0}, jobs={"rerun": GateJobState("done", 8, metrics={"loss": -2.1})})
    assert result(gate, negative)[0] == "passed"
    assert result(gate, Known())[::2] == ("failed", "the run has no value of loss")


def test_approval_is_of_the_same_files_by_another_person_with_the_role() -> None:
    gate = {"approval": "lead"}
    wants = "approval licence by a lead other than eve"

    def of(*given: Approval) -> tuple[str, str, str]:
        return result(gate, Known(approvals={"licence": given, "data": ()}, files="f1", asker="eve"))

    assert of() == ("failed", wants, "not approved")
    assert of(Approval("ann", ("operator",), 1.0, "f1")) == ("failed", wants, "approved only by ann")
    assert of(Approval("eve", ("lead",), 1.0, "f1")) == ("failed", wants, "approved only by eve")
    assert of(Approval("bob", ("lead",), 1.0, "f0")) == ("failed", wants, "bob approved other files of this version")
    both = (Approval("bob", ("lead",), 1.0, "f1"), Approval("ann", ("operator",), 2.0, "f1"))
    assert of(*both) == ("passed", wants, "approved by bob")


def test_budget_counts_the_jobs_of_the_gates_when_they_have_ended() -> None:
    gates = {"budget": {"max_usd": 20}, "repeat": {"rerun": "loss", "tolerance": 0.1}}
    running = Known(run={"loss": 1.0}, jobs={"rerun": GateJobState("running", 8)}, usd=5.0)
    assert results(gates, running)[0] == ("waiting", "cost of at most 20.00 USD", "")
    for usd, expected, saw in [(20.0, "passed", "20.00 USD"), (20.01, "failed", "20.01 USD")]:
        assert result({"max_usd": 20}, Known(usd=usd)) == (expected, "cost of at most 20.00 USD", saw)
    assert result({"max_usd": 20}, Known())[2] == "the cost is not known"
