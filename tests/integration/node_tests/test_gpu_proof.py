"""`make gpu-proof` runs all its steps and writes its report: here against the stand-in for the CUDA driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.node_tests.test_gpu_tests import Machine, library, machine

__all__ = ["library", "machine"]
ROOT = Path(__file__).parents[3]
STEPS = "metrics,errors,checks,tests,nccl,training"  # "agent" measures for seconds


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


def test_bad_gpu_fails_the_proof(machine: Machine, library: Path, tmp_path: Path) -> None:
    (machine.faults / "gpu1-bad-compute").touch()
    done = gpu_proof("--simulated", str(library), "--report", str(tmp_path / "report.md"), "--only", "tests")
    assert done.returncode == 1
    assert "FAILED   GPU 1 (0000:2A:00.0) computes different results" in done.stdout


def test_refuses_unknown_steps_and_machines_without_a_driver(tmp_path: Path) -> None:
    assert "no step flops; there are metrics, errors" in gpu_proof("--only", "flops").stderr
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    done = gpu_proof("--report", str(tmp_path / "report.md"))
    assert done.returncode == 1
    assert done.stderr.startswith("gpu-proof: no NVIDIA driver answers on this machine")
    assert not (tmp_path / "report.md").exists()
