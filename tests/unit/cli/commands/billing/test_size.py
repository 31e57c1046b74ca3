"""size answers rows of a file without a server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture
ROWS = "model,seq,gpus,gpu\nllama3-8b,4096,8,h100\nllama3-8b,4096,8,v100\nllama3-405b,4096,8,h100\n"


def test_rows_as_json_keep_order_and_count(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(ROWS)
    done = cli("size", "--rows", str(tmp_path / "runs.csv"), "-o", "json")
    assert done.code == 0
    first, second, third = json.loads(done.out)
    assert first["tok_s_gpu"] > 1000
    assert first["fits"]
    assert second["tok_s_gpu"] is None
    assert second["error"].startswith("gpu: 'v100' is not known")
    assert not third["fits"]
    assert cli.api.calls == []


def test_rows_as_a_table(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(ROWS)
    done = cli("size", "--rows", str(tmp_path / "runs.csv"))
    assert "does not fit" in done.out
    assert "1 row of 3 can't be answered" in done.err


def test_a_missing_file_is_an_error(cli: Cli) -> None:
    done = cli("size", "--rows", "no.csv")
    assert done.code == 5
    assert "no.csv: No such file" in done.err
