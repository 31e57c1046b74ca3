"""headway mlflow status says whether the MLflow server runs, and what waits for it."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from headway.cli import common
from headway.cli.commands.admin import mlflow
from headway.cli.output.output_formats import Format
from headway.schemas.server import MlflowOut, ServerOut


def connected(monkeypatch: pytest.MonkeyPatch, found: MlflowOut | None) -> None:
    class Api:
        def server(self) -> ServerOut:
            return ServerOut(url="", version="", pid=1, state_dir="", database="", clusters=0, mlflow=found)

    def connect(*_: Any) -> Api:
        return Api()

    monkeypatch.setattr(common, "connect", connect)


def test_a_running_server(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    connected(monkeypatch, MlflowOut(state="running", waiting_bytes={"lab": 2 * 1024**2}))
    mlflow.status(Format.table)
    assert capsys.readouterr().out == "MLflow  running\nlab  2.0 MiB of the jobs' journals wait\n"


def test_a_server_that_failed_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    connected(monkeypatch, MlflowOut(state="failed", error="exit code 1"))
    with pytest.raises(typer.Exit):
        mlflow.status(Format.table)
    assert capsys.readouterr().out == "MLflow  failed: exit code 1\n"
