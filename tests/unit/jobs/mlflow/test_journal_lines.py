"""Journals of jobs are read as far as they can be, and their metrics are sent together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.jobs.mlflow.journal_lines import JournalLine, divide, merge_metrics, parse_lines

RUN = "0123456789abcdef0123456789abcdef"


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def metric(step: int, run: str = RUN) -> list[Any]:
    return ["runs/log-metric", {"run_id": run, "key": "loss", "value": 1.0, "timestamp": 5, "step": step}]


def test_lines_have_the_byte_after_them() -> None:
    data = b"\n" + lines(metric(1)) + b"nonsense\n" + lines(metric(2))
    found = list(parse_lines(data, 100))
    assert [one if isinstance(one, int) else one.end for one in found] == [
        100 + 1 + len(lines(metric(1))),
        100 + 1 + len(lines(metric(1))) + len(b"nonsense\n"),
        100 + len(data),
    ]
    assert isinstance(found[1], int)


@pytest.mark.parametrize(
    "line",
    [
        ["runs/delete", {"run_id": RUN}],
        ["runs/log-metric", {"run_id": "../../x"}],
        ["runs/create", {}],
        ["artifact", {"path": "runs/../../etc/passwd", "file": "1-1", "bytes": 3}],
        ["artifact", {"path": "/etc/passwd", "file": "1-1", "bytes": 3}],
        ["artifact", {"path": "a", "file": "../1-1", "bytes": 3}],
        ["artifact", {"path": "a", "file": "1-1", "bytes": -1}],
        ["artifact", {"path": "a", "file": "1-1", "bytes": True}],
        ["artifact", {"path": "a/%2e%2e/b", "file": "1-1", "bytes": 3}],
        ["artifact", {"path": "a/./b", "file": "1-1", "bytes": 3}],
        ["ask", {"node": "a/b"}],
        ["experiments/create", {}],
        {"name": "runs/create"},
        ["runs/create", 5],
    ],
)
def test_a_line_that_no_receiver_writes_is_left_out(line: Any) -> None:
    assert list(parse_lines(lines(line), 0)) == [len(lines(line))]


def test_consecutive_metrics_of_a_run_are_one_request() -> None:
    other = "f" * 32
    data = lines(
        *(metric(step) for step in range(1500)), ["runs/set-tag", {"run_id": RUN}], metric(1), metric(1, other)
    )
    found = merge_metrics([one for one in parse_lines(data, 0) if isinstance(one, JournalLine)])
    assert [(one.name, one.run, len(one.body.get("metrics", []))) for one in found] == [
        ("runs/log-batch", RUN, 1000),
        ("runs/log-batch", RUN, 500),
        ("runs/set-tag", RUN, 0),
        ("runs/log-batch", RUN, 1),
        ("runs/log-batch", other, 1),
    ]
    assert found[-1].end == len(data)


def test_a_refused_batch_is_divided_into_its_parts() -> None:
    batch = {"run_id": RUN, "params": [{"key": "lr", "value": "1"}], "metrics": [{"key": "loss"}], "tags": []}
    assert [part.body for part in divide(JournalLine("runs/log-batch", batch, 9))] == [
        {"run_id": RUN, "params": [{"key": "lr", "value": "1"}]},
        {"run_id": RUN, "metrics": [{"key": "loss"}]},
    ]
    assert divide(JournalLine("runs/update", {"run_id": RUN}, 9)) == []


def test_batches_without_lists_stay_as_they_are() -> None:
    wrong = [JournalLine("runs/log-batch", {"run_id": RUN, "metrics": value}, 9) for value in (5, "ab", {"a": 1})]
    assert merge_metrics(wrong) == wrong
    assert [divide(one) for one in wrong] == [[], [], []]
