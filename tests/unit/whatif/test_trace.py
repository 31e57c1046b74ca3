"""The check of a trace before its replay."""

from __future__ import annotations

import pytest

from headway.errors import Refused
from headway.whatif.trace import TraceJob, check_trace
from tests.unit.whatif.clusters import lab


def _job(number: int, submit: float, **fields: object) -> TraceJob:
    return TraceJob(**{**{"job_id": str(number), "user": "alice", "account": "vision", "submit": submit, "nodes": 1, "cpus": 1,
                          "run_s": 60}, **fields})  # type: ignore[arg-type]  # fmt: skip


def test_jobs_of_others_are_left_out_with_a_reason() -> None:
    jobs = [_job(1, 10), _job(2, 5), _job(3, 1, user="eve"), _job(4, 1, account="x"), _job(5, 1, partition="x")]
    trace = check_trace(jobs, lab())
    assert [job.job_id for job in trace.jobs] == ["2", "1"]
    assert trace.left_out == {
        "user eve is not in the cluster file": 1,
        "account x is no team of the cluster file": 1,
        "partition x is not in the cluster file": 1,
    }


def test_jobs_of_one_second_have_the_order_of_their_numbers() -> None:
    trace = check_trace([_job(10, 5), _job(9, 5), _job(100, 5)], lab())
    assert [job.job_id for job in trace.jobs] == ["9", "10", "100"]


def test_a_trace_without_a_job_is_refused_with_its_reasons() -> None:
    with pytest.raises(Refused, match="user eve is not in the cluster file"):
        check_trace([_job(1, 1, user="eve")], lab())


def test_an_unknown_qos_is_that_of_the_team() -> None:
    trace = check_trace([_job(1, 1, qos="normal"), _job(2, 2, qos="vision")], lab())
    assert [job.qos for job in trace.jobs] == ["", "vision"]


def test_a_clock_that_jumped_and_a_gap_are_reported() -> None:
    jobs = [_job(n, n * 10.0) for n in range(200)] + [_job(900, 100_000, start=99_000, end=99_500)]
    trace = check_trace(jobs, lab())
    assert len(trace.warnings) == 2
    assert "clock of the accounting jumped: 1 jobs" in trace.warnings[0]
    assert "27.2 hours after 1990" in trace.warnings[1]
    assert trace.jobs[-1].start == 0
