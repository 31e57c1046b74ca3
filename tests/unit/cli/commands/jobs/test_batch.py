"""batch sends its options, and prints progress, cost and workers."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.schemas.submission.batches import BatchOut, BatchWorkerOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def batch(**fields: Any) -> BatchOut:
    base = {
        "id": "b-1", "cluster": "lab", "name": "answers", "person": "a", "user": "a", "created_at": 0, "state": "running",
        "input": "questions@1", "program": "predict.py", "workers": 2, "job_id": 7, "rows": 5000, "done_rows": 2000,
        "errors": 3, "shards": 5, "done_shards": 2, "seconds": 3600, "usd": Decimal("1.25"), "folder": "/scratch/a/b",
        "worker_runs": [BatchWorkerOut(task="7_0", node="n1", shard=4, rows=2000)],
    }  # fmt: skip
    return BatchOut.model_validate({**base, **fields})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_show_prints_progress_cost_and_workers(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("batches.get", batch()).on("batches.list", [batch()])
    shown = cli("batch", "show", "answers").out
    assert "answers (b-1) on lab as a: running" in shown
    assert "2,000 of 5,000, 3 without a result" in shown
    assert "2 of 5; 3,600 s of workers, 1.25 USD" in shown
    assert "7_0" in shown
    assert "2,000 of 5,000" in cli("batch", "ls").out


def test_run_sends_the_options_of_the_batch_and_of_its_job(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("batches.start", batch(job_id=0, worker_runs=[]))
    words = ["--input", "questions", "--output", "answers", "--program", "predict.py", "--workers", "8", "--gpus", "2"]
    cli("batch", "run", *words, "--time", "60", "--tries", "5", "--no-files")
    ((args, _),) = cli.api.named("batches.start")
    request = args[1]
    assert (request.input, request.output, request.program, request.workers) == (
        "questions",
        "answers",
        "predict.py",
        8,
    )
    assert (request.job.gpus, request.job.time, request.tries) == (2, "60", 5)


def test_run_names_what_is_missing(cli: Cli) -> None:
    assert "give --input and --output" in cli("batch", "run", "--program", "p.py").err
    assert "give program, or model for vLLM, or server" in cli("batch", "run", "--input", "a", "--output", "b").err
