"""pipeline sends its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.schemas.submission.pipelines import PipelineOut, PipelineRetryIn, PipelineScheduleOut, StepOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_pipeline_run_prints_steps_and_retry_sends_steps(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text("name: p\nsteps: {a: {run: true}}\n")
    step = StepOut(name="a", job_id=5, state="FAILED", why="the program was not found", runs=2)
    out = PipelineOut(
        id="p-1",
        cluster="lab",
        name="p",
        person="a",
        user="a",
        created_at=0,
        workdir="/w",
        state="failed",
        steps=[step],
    )
    cli.api.on("clusters.only_name", "lab").on("pipelines.start", out).on("bundles.exists", True).on(
        "pipelines.retry", out
    )
    shown = cli("pipeline", "run", "p.yaml").out
    assert "p (p-1) on lab as a: failed" in shown
    assert "the program was not found" in shown
    cli("pipeline", "retry", "p", "--step", "a")
    ((args, _),) = cli.api.named("pipelines.retry")
    assert args == ("lab", "p", PipelineRetryIn(steps=["a"]))


def test_schedules_are_made_listed_and_ended(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text('name: p\nschedule: "0 3 * * *"\nsteps: {a: {run: true}}\n')
    known = PipelineScheduleOut(
        id="c-1", cluster="lab", name="p", person="a", user="a", created_at=0, schedule="0 3 * * *", next_at=1e6,
        dataset="books", last="p-7", why="p-7 still ran",
    )  # fmt: skip
    cli.api.on("clusters.only_name", "lab").on("pipelines.schedule", known).on("bundles.exists", True)
    cli.api.on("pipelines.schedules", [known]).on("pipelines.unschedule", known)
    for shown in (cli("pipeline", "schedule", "p.yaml").out, cli("pipeline", "schedules").out):
        for text in ("0 3 * * *", "dataset books", "p-7 still ran", "c-1"):
            assert text in shown
    ((args, _),) = cli.api.named("pipelines.schedule")
    assert args[1].document["schedule"] == "0 3 * * *"
    assert "p of a is not scheduled any more" in cli("pipeline", "unschedule", "p").out
    assert "none.yaml: no such file" in cli("pipeline", "schedule", "none.yaml").err
