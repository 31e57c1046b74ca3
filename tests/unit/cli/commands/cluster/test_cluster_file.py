"""init and schema work without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_init_never_overwrites_an_existing_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("init", "mine").code == 0
    text = Path("cluster.yaml").read_text()
    assert "name: mine" in text
    Path("cluster.yaml").write_text("precious")
    again = cli("init", "mine")
    assert (again.code, Path("cluster.yaml").read_text()) == (1, "precious")
    assert "cluster.yaml already exists" in again.err
    assert cli("init", "mine", "-f", "-").out == text


@pytest.mark.parametrize("name", ["Bad Name", "1x", "x\ny", "--"])
def test_init_refuses_an_invalid_cluster_name(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("init", "--", name)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_init_reports_a_missing_folder(cli: Cli, tmp_path: Path) -> None:
    done = cli("init", "-f", str(tmp_path / "none/cluster.yaml"))
    assert done.code == 1
    assert done.err == f"error: {tmp_path}/none/cluster.yaml: no such file or directory\n"


def test_schema_prints_a_json_schema(cli: Cli) -> None:
    schema = json.loads(cli("schema").out)
    assert {"name", "plan", "nodes"} <= set(schema["properties"])
