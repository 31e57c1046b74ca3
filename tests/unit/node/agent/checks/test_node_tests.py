"""Node tests before a return to service pass and fail correctly. torch is simulated here; the real one runs in
tests/cluster/test_monitoring.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.checks import node_tests
from agent.gpu import interface

PLAN = config.Config(head="h", gpus=2, expects={"burn_tflops": 500.0})
SIMULATED = config.Config(head="h", gpus=2, simulated=True, expects={"burn_tflops": 500.0})


class Played(node_tests.TorchTests):
    """Measures what a test says, without torch."""

    def __init__(self, plan: Any, figure: float, trouble: str) -> None:
        self._config, self._figure, self._trouble = plan, figure, trouble

    def burn(self) -> Any:
        if self._trouble:
            raise node_tests.TestFailed(self._trouble)
        return self._outcome("burn", self._figure, "TFLOP/s", "burn_tflops")


def burn(monkeypatch: Any, plan: Any, figure: float = 600.0, trouble: str = "") -> Any:
    monkeypatch.setattr(node_tests, "TorchTests", lambda plan, _: Played(plan, figure, trouble))
    return node_tests.run_guarded("burn", plan, Played.burn, 1.0)


def test_figure_below_the_plan_fails_unless_gpus_are_simulated(monkeypatch: Any) -> None:
    assert burn(monkeypatch, PLAN).ok
    slow = burn(monkeypatch, PLAN, figure=420.0)
    assert (slow.ok, slow.expected, slow.reason) == (False, 500.0, "less than the plan expects")
    shown = burn(monkeypatch, SIMULATED, figure=0.001)
    assert (shown.ok, shown.simulated, shown.expected) == (True, True, None)
    assert shown.line() == "burn       ok  0.001 TFLOP/s  SIMULATED"


def test_exception_in_a_node_test_is_a_failure_with_its_reason(monkeypatch: Any) -> None:
    wrong = burn(monkeypatch, PLAN, trouble="cuda:1 computes different results for the same input")
    assert (wrong.ok, wrong.figure, wrong.reason) == (
        False,
        None,
        "cuda:1 computes different results for the same input",
    )

    def explode(_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access")

    assert (
        node_tests.run_guarded("burn", PLAN, explode, 1.0).reason
        == "RuntimeError: CUDA error: an illegal memory access"
    )


class Source:
    simulated = True
    driver = ""

    def __init__(self, **figures: float) -> None:
        self.figures = figures

    def read(self) -> list[Any]:
        return [
            interface.Gpu(0, "a", "n", "", {}),
            interface.Gpu(1, "b", "n", "", self.figures, lost="lost" in self.figures),
        ]


@pytest.mark.parametrize(
    ("test", "figures", "says"),
    [
        ("memory", {interface.DBE: 2}, "GPU 1 had 2 uncorrected memory errors"),
        ("burn", {interface.THROTTLE: 0x40}, "GPU 1 is throttled"),
        ("copy", {"lost": 1}, "GPU 1 does not answer"),
        ("copy", {interface.DBE: 2, interface.THROTTLE: 0x40}, ""),
        ("burn", {interface.THROTTLE: 0x1}, ""),
    ],
)
def test_device_errors_report_known_driver_faults(test: str, figures: Any, says: str) -> None:
    assert node_tests.device_errors(test, Source(**figures)) == says


def test_main_prints_one_json_line_per_test_and_sets_exit_status(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    place = tmp_path / "agent.json"
    place.write_text(json.dumps({"head": "h", "gpus": 2}))
    rows = [
        node_tests.TestResult("gpu_count", True),
        node_tests.TestResult("burn", False, figure=1.0, unit="TFLOP/s", reason="slow"),
    ]
    monkeypatch.setattr(node_tests, "run_tests", lambda *_: iter(rows))
    assert node_tests.main(["all", "--json", "--config", str(place)]) == 1
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told[1] == {
        "test": "burn", "ok": False, "simulated": False, "figure": 1.0, "unit": "TFLOP/s", "expected": None, "reason": "slow",
    }  # fmt: skip
    rows.pop()
    assert node_tests.main(["all", "--config", str(place)]) == 0


def test_interface_with_address_returns_the_interface_name() -> None:
    assert node_tests.interface_with_address("127.0.0.1") == "lo"
    assert node_tests.interface_with_address("203.0.113.77") == ""
