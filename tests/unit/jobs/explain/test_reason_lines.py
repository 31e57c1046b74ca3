"""The state and reason of a job are explained in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.jobs.explain.reason_lines import job_reason
from tests.support.clusters import builders


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"state": "OUT_OF_MEMORY"}, "--mem"),
        ({"state": "TIMEOUT", "time_limit_s": 5400}, "1 h 30 min"),
        ({"state": "FAILED", "exit_code": 127}, "not found"),
        ({"state": "FAILED", "exit_code": 125}, "its container could not be started"),
        ({"state": "FAILED", "exit_code": 139}, "SIGSEGV"),
        ({"state": "FAILED", "exit_code": 3}, "exit code 3"),
        ({"state": "COMPLETING", "exit_code": 127}, "not found"),
        ({"state": "COMPLETING"}, ""),
        ({"state": "PENDING", "reason": "DependencyNeverSatisfied"}, "can't be satisfied"),
        ({"state": "PENDING", "reason": "Something, new"}, "Something"),
        ({"state": "PENDING", "reason": "None"}, ""),
        ({"state": "RUNNING"}, ""),
        ({"state": "COMPLETED"}, ""),
    ],
)
def test_job_reason_explains_state_and_exit_code(change: dict[str, object], text: str) -> None:
    found = job_reason(replace(builders.job(7), **change))  # type: ignore[arg-type]
    assert text in found if text else found == ""
