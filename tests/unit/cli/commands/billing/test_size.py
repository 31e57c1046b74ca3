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


def test_a_training_without_a_server(cli: Cli) -> None:
    done = cli("size", "llama-3-8b", "--gpus", "64", "--tokens", "1T", "--explain")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[1].split() == ["GPUs", "64", "h100", "on", "8", "nodes"]
    assert any(line.startswith("price") and "USD" in line for line in lines)
    assert "2104.04473" in done.out
    assert "wider band: no published run with SwiGLU" in done.err
    assert cli.api.calls == []


def test_gpu_types_are_compared(cli: Cli) -> None:
    done = cli("size", "8b", "--gpu", "h100", "--gpu", "b200", "--tokens", "1T", "--deadline", "60d")
    assert [line.split()[0] for line in done.out.splitlines()] == ["GPU", "h100", "b200"]


def test_answers_as_json(cli: Cli) -> None:
    done = cli("size", "8b", "--gpus", "8", "--price", "2", "--tokens", "1B", "-o", "json")
    found = json.loads(done.out)
    assert found["usd"] == found["gpu_hours"] * 2
    done = cli("size", "8b", "--task", "inference", "--rate", "20000", "-o", "json")
    (service,) = json.loads(done.out)
    assert service["total_gpus"] == service["replicas"] * service["gpus"]


def test_a_service_as_a_table(cli: Cli) -> None:
    done = cli("size", "70b", "--task", "inference", "--gpu", "h100", "--gpu", "mi300x")
    assert [line.split()[0] for line in done.out.splitlines()] == ["GPU", "h100", "mi300x"]
    assert "not fitted to measured services" in done.err


def test_a_config_or_its_folder(cli: Cli, tmp_path: Path) -> None:
    config = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "vocab_size": 32000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "config.json"):
        assert cli("size", str(path), "--gpus", "8").code == 0


def test_a_batch_script(cli: Cli) -> None:
    done = cli("size", "8b", "--gpus", "16", "--sbatch")
    assert done.out.startswith("#!/bin/bash\n#SBATCH --job-name=8b\n#SBATCH --nodes=2\n")


def test_what_cannot_be_sized_is_one_sentence(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "list.json").write_text("[]")
    for words, text in (
        ([], "no model"),
        (["70k"], "for billions write 70b"),
        (["8b", "--gpu", "v100"], "--gpu v100: not a known GPU type"),
        (["8b", "--gpu", "a100", "--precision", "fp8"], "a100 has no fp8"),
        (["8b", "--precision", "int1"], "--precision int1: not known"),
        (["8b", "--task", "sleep"], "--task sleep: not known"),
        (["8b", "--task", "inference", "--tokens", "1B"], "--tokens is of trainings"),
        (["70b", "--task", "inference", "--gpus", "1"], "it fits with --gpus 4"),
        ([str(tmp_path / "deep.json")], "deep.json"),
        ([str(tmp_path / "list.json")], "list.json: not an object"),
        (["8b", "--gpu", "h100", "--gpu", "h200", "--sbatch"], "--sbatch prints one script"),
    ):
        done = cli("size", *words)
        assert done.code != 0
        assert text in done.err
        assert "Traceback" not in done.err
