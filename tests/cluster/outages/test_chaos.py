"""Random faults under a running mix of jobs lose no job: bench/long_runs/chaos.py ends with 1 if a job is lost, or a node is
drained without a reason or returned without its tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.mark.parametrize(("faults", "patience_s"), [(2, 1100), pytest.param(100, 5400, marks=pytest.mark.soak)])
def test_random_faults_lose_no_job(node_image: None, faults: int, patience_s: int) -> None:
    argv = [sys.executable, str(BENCH), "long_runs/chaos", "--faults", str(faults), "--seed", "1"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=patience_s, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lost: 0 " in ran.stdout
