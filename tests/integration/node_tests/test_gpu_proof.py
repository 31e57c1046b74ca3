"""`make gpu-proof` runs all its steps and writes its report: here against the stand-in for the CUDA driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.gpu.gpu_source import Gpu
from gpu_proof.report import ReportLine
from gpu_proof.steps import duration_result
from gpu_proof.training import Training
from tests.integration.node_tests.test_gpu_tests import Machine, library, machine

__all__ = ["library", "machine"]
ROOT = Path(__file__).parents[3]
STEPS = "metrics,errors,checks,tests,nccl,training,rlhf"  # "agent" measures for seconds


def gpu_proof(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "node/gpu_proof"), "--seconds", "0.05", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, env=os.environ, check=False)


def test_report_names_every_result_and_says_simulated(machine: Machine, library: Path, tmp_path: Path) -> None:
    report = tmp_path / "gpu-checks.md"
    done = gpu_proof("--simulated", str(library), "--report", str(report), "--only", STEPS)
    assert done.returncode == 0, done.stdout + done.stderr
    text = report.read_text()
    assert "**SIMULATED: no GPU was used.**" in text
    for line in ("| tests | burn | ok |", "| checks | gpu_count | ok |", "| nccl | allreduce | not run |"):
        assert line in text
    assert "FAILED" not in text
    assert "| rlhf | rlhf | not run | skipped: this Python has no " in text


def test_bad_gpu_fails_the_proof(machine: Machine, library: Path, tmp_path: Path) -> None:
    (machine.faults / "gpu1-bad-compute").touch()
    done = gpu_proof("--simulated", str(library), "--report", str(tmp_path / "report.md"), "--only", "tests")
    assert done.returncode == 1
    assert "FAILED   GPU 1 (0000:2A:00.0) computes different results" in done.stdout


def test_tests_that_take_longer_than_they_may_fail_the_proof() -> None:
    assert duration_result(89.9) == ReportLine("all tests of the node", "ok", "89.9 s, within the limit of 90 s")
    assert duration_result(90.1) == ReportLine(
        "all tests of the node", "FAILED", "90.1 s, which exceeds the limit of 90 s"
    )


@pytest.mark.parametrize("words", [("--only", "metrics"), ("--simulated", "/nowhere/libcuda.so")])
def test_partial_or_simulated_proof_needs_a_file_of_its_own(words: Sequence[str]) -> None:
    page = ROOT / "docs/gpu-checks.md"
    before = page.read_bytes()
    done = gpu_proof(*words)
    assert done.returncode == 2
    assert "need --report FILE" in done.stderr
    assert page.read_bytes() == before


STEP = 'print("step 20 loss 2.0 1,000 tokens/s", flush=True)'


class NoGpus:
    """A source of metrics without GPUs."""

    simulated, driver = True, ""

    def read(self) -> list[Gpu]:
        return []


@pytest.mark.parametrize(
    ("script", "kill_after", "state", "text"),
    [
        (f"import time; {STEP}; time.sleep(600)", 20, "ok", "step 20, loss 2.0"),
        (f"{STEP}; raise SystemExit('CUDA error')", 30, "FAILED", "it ended by itself with exit status 1: CUDA error"),
        (STEP, 30, "FAILED", "it ended by itself with exit status 0"),
        (STEP, 0, "ok", "step 20, loss 2.0"),
        (f"{STEP}; raise SystemExit('CUDA error')", 0, "FAILED", "exit status 1: CUDA error"),
        ("raise SystemExit('no torch')", 20, "FAILED", "exit status 1: no torch"),
        (f"import time; {STEP}; time.sleep(600)", 0, "FAILED", "it did not end within 0.5 s"),
    ],
)
def test_training_is_ok_if_it_was_killed_or_reached_its_end(
    script: str, kill_after: int, state: str, text: str
) -> None:
    longest_s = 0.5 if "within" in text else 60.0
    run = Training([sys.executable, "-c", script], NoGpus(), kill_after=kill_after, longest_s=longest_s)
    found = run.result("training")
    assert found.state == state
    assert text in found.text


def test_refuses_unknown_steps_and_machines_without_a_driver(tmp_path: Path) -> None:
    assert "no step flops; there are metrics, errors" in gpu_proof("--only", "flops").stderr
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    done = gpu_proof("--report", str(tmp_path / "report.md"))
    assert done.returncode == 1
    assert done.stderr.startswith("gpu-proof: no NVIDIA driver answers on this machine")
    assert not (tmp_path / "report.md").exists()
