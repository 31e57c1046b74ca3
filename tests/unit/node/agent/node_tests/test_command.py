"""Node tests before a return to service pass, fail and are skipped correctly. Tests that compute run in
tests/integration/command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.gpu import gpu_metrics, gpu_source
from agent.gpu.mig import Instance
from agent.node_tests import allreduce, command, results
from agent.node_tests.cuda_driver import CudaError

PLAN = config.Config(head="h", gpus=2, expects={"burn_tflops": 500.0})
SIMULATED = config.Config(head="h", gpus=2, simulated=True, expects={"burn_tflops": 500.0})


def burn(plan: Any, figure: float = 600.0, *, error: Exception | None = None) -> Any:
    """Runs a burn test that measures `figure`, or ends with `error`."""

    def measure() -> Any:
        if error:
            raise error
        return command.GpuTests(plan, 1.0)._outcome("burn", figure, "TFLOP/s", "burn_tflops")

    return command.run_guarded("burn", plan, measure)


def test_figure_below_the_plan_fails_unless_gpus_are_simulated() -> None:
    assert burn(PLAN).ok
    slow = burn(PLAN, figure=420.0)
    assert (slow.ok, slow.expected, slow.reason) == (False, 500.0, "less than the plan expects")
    shown = burn(SIMULATED, figure=0.001)
    assert (shown.ok, shown.simulated, shown.expected) == (True, True, None)
    assert shown.line() == "burn       ok  0.001 TFLOP/s  SIMULATED"


@pytest.mark.parametrize(
    ("error", "ok", "skipped", "reason"),
    [
        (results.NodeTestFailed("GPU 1 computes other results"), False, False, "GPU 1 computes other results"),
        (results.NodeTestSkipped("no libnccl.so.2"), True, True, "no libnccl.so.2"),
        (CudaError("cuInit", 999, "UNKNOWN", "unknown error"), False, False, "cuInit: UNKNOWN (unknown error)"),
        (RuntimeError("no such thing"), False, False, "RuntimeError: no such thing"),
    ],
)  # fmt: skip
def test_exception_in_a_node_test_is_its_reason(error: Exception, ok: bool, skipped: bool, reason: str) -> None:
    found = burn(PLAN, error=error)
    assert (found.ok, found.skipped, found.reason, found.figure) == (ok, skipped, reason, None)


def test_skipped_test_says_so_in_its_line() -> None:
    assert burn(PLAN, error=results.NodeTestSkipped("no libnccl.so.2")).line() == "burn       skipped  no libnccl.so.2"


class Source:
    simulated = True
    driver = ""
    cuda = 0

    def __init__(self, **figures: float) -> None:
        self.figures = figures

    def read(self) -> list[Any]:
        return [
            gpu_source.Gpu(0, "a", "n", "", {}),
            gpu_source.Gpu(1, "b", "n", "", self.figures, lost="lost" in self.figures),
        ]


@pytest.mark.parametrize(
    ("test", "figures", "says"),
    [
        ("memory", {gpu_metrics.DBE: 2}, "GPU 1 had 2 uncorrected memory errors"),
        ("burn", {gpu_metrics.THROTTLE: 0x40}, "GPU 1 is throttled"),
        ("copy", {"lost": 1}, "GPU 1 does not answer"),
        ("copy", {gpu_metrics.DBE: 2, gpu_metrics.THROTTLE: 0x40}, ""),
        ("burn", {gpu_metrics.THROTTLE: 0x1}, ""),
    ],
)
def test_device_errors_report_known_driver_faults(test: str, figures: Any, says: str) -> None:
    assert command.device_errors(test, Source(**figures)) == says


def test_main_prints_one_json_line_per_test_and_sets_exit_status(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    place = tmp_path / "agent.json"
    place.write_text(json.dumps({"head": "h", "gpus": 2}))
    rows = [
        results.NodeTestResult("gpu_count", True),
        results.NodeTestResult("burn", False, figure=1.0, unit="TFLOP/s", reason="slow"),
    ]
    monkeypatch.setattr(command, "run_tests", lambda *_: iter(rows))
    assert command.main(["all", "--json", "--config", str(place)]) == 1
    captured = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert captured[1] == {
        "test": "burn", "ok": False, "simulated": False, "figure": 1.0, "unit": "TFLOP/s", "expected": None,
        "reason": "slow", "skipped": False,
    }  # fmt: skip
    rows.pop()
    assert command.main(["all", "--config", str(place)]) == 0


def test_interface_with_address_returns_the_interface_name() -> None:
    assert allreduce.interface_with_address("127.0.0.1") == "lo"
    assert allreduce.interface_with_address("203.0.113.77") == ""


def test_gpus_in_mig_mode_are_not_tested_as_whole_ones() -> None:
    """CUDA lets a process use one MIG instance only, so it would find too few GPUs."""
    plan = config.Config(head="h", gpus=8, mig=(Instance(0, 4, 3, 1, "3g.71gb"),))
    with pytest.raises(results.NodeTestSkipped, match="divided into MIG instances"):
        command.GpuTests(plan, 1.0, library="/no/such/library").open_devices()


def test_node_is_fit_once_its_agent_no_longer_turns_jobs_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfit = tmp_path / "unfit"
    unfit.write_text("GPU 7 had 1 uncorrected memory errors\n")
    monkeypatch.setattr(command.time, "sleep", lambda _: unfit.unlink())  # the agent's next round
    assert command.wait_until_prolog_accepts(str(unfit)) == ""


def test_node_whose_agent_turns_jobs_away_fails_its_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfit = tmp_path / "unfit"
    unfit.write_text("GPU 7 had 1 uncorrected memory errors\n")
    assert command.wait_until_prolog_accepts(str(unfit), patience_s=0) == "GPU 7 had 1 uncorrected memory errors"
    monkeypatch.setattr(command, "wait_until_prolog_accepts", lambda: "its /scratch is not mounted")
    monkeypatch.setattr(command, "open_source", lambda _: None)
    for bad_check, expected in ((False, ["a", "prolog"]), (True, ["a"])):
        row = results.NodeTestResult("a", not bad_check)
        monkeypatch.setattr(command, "run_all_checks", lambda *_, row=row: iter([row]))
        arguments = command.argparse.Namespace(name="checks", seconds=1.0)
        found = list(command.run_tests(PLAN, arguments))
        assert [one.test for one in found] == expected
        assert not found[-1].ok
