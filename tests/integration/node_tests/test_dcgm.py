"""NVIDIA's diagnostic, where it is installed, fails a node for faults of hardware only. The reports have the form that dcgmi
3.3 and 4.6 write (dcgmi/Diag.cpp)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.config import Config
from agent.gpu.mig import Instance
from agent.node_tests import command, dcgm
from agent.node_tests.results import NodeTestFailed, NodeTestResult, NodeTestSkipped
from tests.support.machines.stand_in_programs import StandInPrograms, stand_in_programs

CALL = ("diag", "--run", "1", "--json")
NODE = Config(head="h", gpus=2)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInPrograms:
    return stand_in_programs(tmp_path / "bin", monkeypatch)


def version3(status: str = "Pass", text: str = "", *, software: str = "Pass") -> str:
    results: list[dict[str, Any]] = [{"gpu_ids": "0", "status": "Pass"}, {"gpu_ids": "1", "status": status}]
    if text:
        results[1]["warnings"] = text
    deployment = [{"name": "Denylist", "results": [{"status": "Pass"}]}]
    persistence: dict[str, Any] = {"name": "Persistence Mode", "results": [{"status": software}]}
    if software == "Fail":
        persistence["results"][0]["warnings"] = "Persistence mode for GPU 0 is disabled."
    categories = [
        {"category": "Deployment", "tests": [*deployment, persistence]},
        {"category": "Hardware", "tests": [{"name": "GPU Memory", "results": results}]},
    ]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": categories}, "version": "3.3.9"})


def version4(name: str, category: str, severity: int, text: str, error: int = 44) -> str:
    entity = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 1}
    warning = {"warning": text, "error_id": error, "error_category": 9, "error_severity": severity}
    summary = {"status": "Fail", "warnings": [warning]}
    rows = [{**entity, "entity_id": 0, "status": "Pass"}, {**entity, "status": "Fail", "warnings": [warning]}]
    tests = [{"name": name, "results": rows, "test_summary": summary}]
    software = {"name": "software", "test_summary": {"status": "Pass"}}
    skipped = {"name": "nvbandwidth", "results": [{**entity, "status": "Skip"}], "test_summary": {"status": "Skip"}}
    categories = [
        {"category": "Deployment", "tests": [software]},
        {"category": category, "tests": [*tests, skipped]},
    ]
    return json.dumps({"DCGM Diagnostic": {"test_categories": categories}, "metadata": {"version": "4.6.0"}})


def test_passed_diagnostic_counts_its_tests(programs: StandInPrograms) -> None:
    programs.accept("dcgmi", *CALL, out=version3())
    assert dcgm.run_dcgm_test() == (3, "")
    assert programs.called == [["dcgmi", *CALL]]


def test_longer_diagnostic_runs_only_when_asked_for(programs: StandInPrograms) -> None:
    """The tests of a node that returns to service may take 90 s."""
    programs.accept("dcgmi", "diag", "--run", "2", "--json", out=version3())
    (result,) = command.run_dcgm(NODE, dcgm.LONG_LEVEL)
    assert (result.ok, result.figure) == (True, 3.0)


def test_fault_of_a_gpu_fails_the_node(programs: StandInPrograms) -> None:
    programs.accept("dcgmi", *CALL, out=version3("Fail", "Memory error at\naddress 0x10."), code=226)
    with pytest.raises(NodeTestFailed, match=r"^GPU Memory on GPU 1: Memory error at address 0x10\.$"):
        dcgm.run_dcgm_test()


@pytest.mark.parametrize(
    ("severity", "hardware"), [(1, False), (2, True), (3, False), (4, True), (5, False), (6, True)]
)
def test_severity_of_version_4_decides(programs: StandInPrograms, severity: int, hardware: bool) -> None:
    programs.accept("dcgmi", *CALL, out=version4("pcie", "Integration", severity, "Too slow."), code=226)
    if hardware:
        with pytest.raises(NodeTestFailed, match=r"^pcie on GPU 1: Too slow\.$"):
            dcgm.run_dcgm_test()
    else:
        assert dcgm.run_dcgm_test() == (1, "pcie on GPU 1: Too slow.")


@pytest.mark.parametrize(
    ("error", "text", "hardware"),
    [
        (29, "Persistence mode for GPU 1 is disabled.", False),
        (25, "Graphics processes are running.", False),
        (55, "ECC is disabled.", False),
        (85, "A row remap is pending.", True),
        (9, "The InfoROM is corrupt.", True),
    ],
)
def test_setting_with_the_severity_of_hardware_fails_no_node(
    programs: StandInPrograms, error: int, text: str, hardware: bool
) -> None:
    programs.accept("dcgmi", *CALL, out=version4("software", "Deployment", 2, text, error), code=226)
    if hardware:
        with pytest.raises(NodeTestFailed, match=f"^software on GPU 1: {text}$"):
            dcgm.run_dcgm_test()
    else:
        assert dcgm.run_dcgm_test() == (1, f"software on GPU 1: {text}")


def test_setting_fails_no_node_and_is_named(programs: StandInPrograms) -> None:
    programs.accept("dcgmi", *CALL, out=version3(software="Fail"), code=226)
    (result,) = command.run_dcgm(NODE)
    assert result.line() == ("dcgm       ok  2 tests passed  Persistence Mode: Persistence mode for GPU 0 is disabled.")


@pytest.mark.parametrize(
    ("out", "err", "reason"),
    [
        ("Error: unable to establish a connection to the specified host: localhost\n", "",
         "dcgmi diag can't run: Error: unable to establish a connection to the specified host: localhost"),
        (json.dumps({"DCGM Diagnostic": {"version": "4.6.0", "runtime_error": "Error: DCGM is\npaused."}}), "",
         "dcgmi diag can't run: Error: DCGM is paused."),
        ("", "dcgmi: error while loading shared libraries", "dcgmi diag can't run: dcgmi: error while loading shared libraries"),
        ("{}", "", "dcgmi diag wrote a report that Headway can't read"),
        (json.dumps({"DCGM Diagnostic": {"test_categories": []}}), "", "dcgmi diag ran no test"),
    ],
)  # fmt: skip
def test_diagnostic_that_cannot_run_is_skipped(programs: StandInPrograms, out: str, err: str, reason: str) -> None:
    programs.accept("dcgmi", *CALL, out=out, err=err, code=1)
    (result,) = command.run_dcgm(NODE)
    assert (result.ok, result.skipped, result.reason) == (True, True, reason)


def test_diagnostic_that_hangs_is_ended_and_skipped(programs: StandInPrograms) -> None:
    programs.accept("dcgmi", *CALL, seconds=600)
    with pytest.raises(NodeTestSkipped, match="dcgmi did not end within 1 s"):
        dcgm.run_dcgm_test(limit_s=1)


def test_call_that_is_not_registered_is_refused(programs: StandInPrograms) -> None:
    programs.accept("dcgmi", *CALL, out=version3())
    with pytest.raises(NodeTestSkipped, match="refused: diag --run 2 --json"):
        dcgm.run_dcgm_test(dcgm.LONG_LEVEL)


def test_missing_dcgm_is_skipped_with_its_package(programs: StandInPrograms) -> None:
    (result,) = command.run_dcgm(NODE)
    assert result.line() == "dcgm       skipped  dcgmi is not installed (package datacenter-gpu-manager)"
    assert list(command.run_dcgm(Config(head="h"))) == [], "a node without GPUs"
    assert list(command.run_dcgm(Config(head="h", gpus=2, simulated=True))) == []


def test_simulated_gpus_are_tested_where_dcgm_is_installed(programs: StandInPrograms) -> None:
    programs.accept("dcgmi", *CALL, out=version3())
    assert list(command.run_dcgm(Config(head="h", gpus=2, simulated=True))) == [
        NodeTestResult("dcgm", True, True, 3.0, "tests passed")
    ]


def test_divided_gpus_are_skipped(programs: StandInPrograms) -> None:
    programs.accept("dcgmi", *CALL, out=version3())
    instance = Instance("3g.71gb", 0, 4, 3, 1, 71000)
    (result,) = command.run_dcgm(Config(head="h", gpus=2, mig=(instance,)))
    assert (result.skipped, programs.called) == (True, [])
