"""sweep sends its file, and prints trials with the best one."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.schemas.submission.run_request import RunOut
from headway.schemas.submission.sweeps import SweepBestIn, SweepOut, TrialOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def sweep(**fields: Any) -> SweepOut:
    trials = [
        TrialOut(number=1, parameters={"lr": 0.1}, state="done", job_id=5, step=9, value=0.25, run_s=60, gpu_hours=0.5),
        TrialOut(number=2, parameters={"lr": 0.2}, state="stopped", job_id=6, step=3, value=2, why="loss 2 at step 3"),
    ]
    base = {
        "id": "s-1", "cluster": "lab", "name": "lr", "person": "a", "user": "a", "created_at": 0, "state": "running",
        "method": "grid", "metric": "loss", "goal": "minimize", "parameters": ["lr"], "trial_count": 4, "parallel": 2,
        "trials": trials, "ended_trials": 2, "best": 1, "best_value": 0.25, "gpu_hours": 0.5, "usd": Decimal("1.25"),
    }  # fmt: skip
    return SweepOut.model_validate({**base, **fields})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("name: lr\nrun: python t.py\n")


def test_show_prints_trials_with_the_best_one_and_the_cost(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("sweeps.get", sweep()).on("sweeps.list", [sweep(trials=[])])
    shown = cli("sweep", "show", "lr").out
    assert "lr (s-1) on lab as a: running" in shown
    assert "0.25 best" in shown
    assert "loss 2 at step 3" in shown
    assert "2 of 4 trials have ended; 0.50 GPU-hours, 1.25 USD" in shown
    assert "2/4" in cli("sweep", "ls").out


def test_dry_run_uploads_nothing_and_prints_the_highest_cost(cli: Cli) -> None:
    planned = sweep(id="", state="planned", most_gpu_hours=32, most_usd=Decimal(80), max_cost=50, best=None)
    cli.api.on("clusters.only_name", "lab").on("sweeps.start", planned)
    shown = cli("sweep", "run", "s.yaml", "--dry-run", "--max-cost", "50").out
    assert "at most 32.00 GPU-hours, 80.00 USD for 4 trials; it stops at 50.00 USD" in shown
    assert "... 4 trials in all, 2 at once" in shown
    ((args, _),) = cli.api.named("sweeps.start")
    assert args[1].document == {"name": "lr", "run": "python t.py", "max_cost": 50.0}
    assert args[1].dry_run
    assert cli.api.named("bundles.exists") == []


def test_best_prints_the_script_and_submits_only_on_request(cli: Cli) -> None:
    done = RunOut(job_id=9, cluster="lab", user="a", workdir="/w", script=[])
    cli.api.on("clusters.only_name", "lab").on("sweeps.run_best", done)
    cli("sweep", "best", "lr", "--nodes", "4")
    assert "Submitted batch job 9" in cli("sweep", "best", "lr", "--nodes", "4", "--trial", "2", "--submit").out
    sent = [args[2] for args, _ in cli.api.named("sweeps.run_best")]
    assert sent == [SweepBestIn(nodes=4, dry_run=True), SweepBestIn(nodes=4, trial=2)]
