"""Fifty people and an operator use a cluster with faults: no job is lost, the server answers without an error of its own,
and in an hour no daemon grows (bench/long_runs/day_of_life.py ends with 1 otherwise)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.mark.parametrize(("minutes", "patience_s"), [(2, 1100), pytest.param(60, 7200, marks=pytest.mark.soak)])
def test_day_of_fifty_people_loses_no_job_and_fills_no_daemon(node_image: None, minutes: int, patience_s: int) -> None:
    argv = [sys.executable, str(BENCH), "long_runs/day_of_life", "--minutes", str(minutes)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=patience_s, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lost: 0 " in ran.stdout
