"""Random changes of node counts under load with a failing provider lose nothing: bench/long_runs/elastic.py ends with 1 if a
job is lost, a machine is left over, a node is stuck or slurmctld was restarted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.mark.parametrize(("events", "patience_s"), [(4, 900), pytest.param(200, 7200, marks=pytest.mark.soak)])
def test_random_scaling_loses_no_job_and_leaves_no_machine(node_image: None, events: int, patience_s: int) -> None:
    argv = [sys.executable, str(BENCH), "long_runs/elastic", "--events", str(events), "--seed", "1"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=patience_s, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lost: 0 " in ran.stdout
