"""The program of a fabric test answers every line of its standard input."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from agent.config import Config
from agent.node_tests import end_on_job_start, fabric_member
from agent.node_tests.cuda_driver import CudaError
from agent.node_tests.results import NodeTestFailed, NodeTestResult, NodeTestSkipped


@pytest.fixture(autouse=True)
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fabric_member,
        "gives_way_to_jobs",
        lambda: end_on_job_start.gives_way_to_jobs(str(tmp_path / "mark"), str(tmp_path)),
    )


def config() -> Config:
    return Config(head="lab-head", simulated=True)


def test_each_line_is_one_measurement() -> None:
    seen: list[tuple[list[str], int]] = []

    def measure(peers: list[str], rank: int) -> NodeTestResult:
        seen.append((peers, rank))
        return NodeTestResult("allreduce", True, True, 1.5, "GB/s")

    asks = io.StringIO('{"peers": ["10.0.0.1", "10.0.0.2"], "rank": 1}\n{"peers": ["10.0.0.1"], "rank": 0}\n')
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in fabric_member.take_part(config(), lambda: measure, asks)
    ]
    assert lines[0]["ready"] is True
    assert set(lines[0]["network"]) == {"interfaces", "rdma_ports", "settings"}
    assert [line["figure"] for line in lines[1:]] == [1.5, 1.5]
    assert seen == [(["10.0.0.1", "10.0.0.2"], 1), (["10.0.0.1"], 0)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NodeTestFailed("CUDA finds 7 GPUs, 8 expected"), "CUDA finds 7 GPUs, 8 expected"),
        (CudaError("cuInit", 999, "UNKNOWN", "unknown error"), "cuInit: UNKNOWN (unknown error)"),
        (OSError("libcudart is damaged"), "OSError: libcudart is damaged"),
    ],
)
def test_failed_preparation_is_a_failed_result(error: Exception, reason: str) -> None:
    def prepare() -> fabric_member.Measure:
        raise error

    (line,) = fabric_member.take_part(config(), prepare, io.StringIO())
    found = json.loads(line)
    assert (found["ok"], found["skipped"], found["reason"]) == (False, False, reason)


def test_missing_library_is_a_skipped_result() -> None:
    def prepare() -> fabric_member.Measure:
        raise NodeTestSkipped("torch is not installed on this node")

    (line,) = fabric_member.take_part(config(), prepare, io.StringIO())
    assert json.loads(line)["skipped"] is True
    assert json.loads(line)["reason"] == "torch is not installed on this node"
