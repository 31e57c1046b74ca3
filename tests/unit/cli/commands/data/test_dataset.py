"""dataset add, list, verify and remove send the right requests and print the answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.schemas.storage.datasets import DatasetOut
from tests.support.cli_fakes import Cli, cli, operation

__all__ = ["cli"]  # a fixture
ONE = DatasetOut(
    name="tiny", version=1, path="/datasets/tiny/1", digest="0" * 64, files=3, bytes=5 << 20, source="/data/tiny",
    person="ann", at=1.0, jobs=2,
)  # fmt: skip
TWO = ONE.model_copy(update={"version": 2, "state": "damaged", "damage": "  a is missing", "checked_at": 2.0})


def test_dataset_add_prints_the_path_of_the_new_version(cli: Cli) -> None:
    done = operation("done", kind="dataset", kept=["/datasets/tiny/1"])
    cli.api.on("clusters.only_name", "lab").on("datasets.add", done).on("operations.events", []).on(
        "operations.get", done
    )
    ended = cli("dataset", "add", "tiny", "--from", "data/tiny")
    assert ended.out.splitlines()[-1] == "/datasets/tiny/1"
    assert cli.api.named("datasets.add") == [(("lab", "tiny", str(Path.cwd() / "data/tiny")), {})]


def test_dataset_list_prints_versions_and_their_state(cli: Cli) -> None:
    cli.api.on("datasets.list", [ONE, TWO])
    out = cli("dataset", "ls", "--cluster", "lab").out
    for words in ("tiny@1", "5.0 MiB", "whole", "tiny@2", "damaged"):
        assert words in out
    assert cli("dataset", "ls", "wide", "--cluster", "lab").out == "no dataset wide on lab\n"


def test_dataset_verify_defaults_to_the_latest_version(cli: Cli) -> None:
    done = operation("done", kind="dataset")
    cli.api.on("datasets.list", [ONE, TWO]).on("datasets.verify", done).on("operations.events", []).on(
        "operations.get", done
    )
    assert cli("dataset", "verify", "tiny", "--cluster", "lab").out.splitlines()[-1] == "tiny@2 is complete"
    assert cli.api.named("datasets.verify") == [(("lab", "tiny", 2), {})]
    assert cli("dataset", "verify", "wide", "--cluster", "lab").code == 5
    assert cli("dataset", "verify", "tiny@x", "--cluster", "lab").code == 1


def test_dataset_remove_requires_a_version_and_confirmation(cli: Cli) -> None:
    done = operation("done", kind="dataset")
    cli.api.on("datasets.remove", done).on("operations.events", []).on("operations.get", done)
    assert cli("dataset", "rm", "tiny", "--cluster", "lab").code == 1
    assert cli("dataset", "rm", "tiny@1", "--cluster", "lab").code == 3
    ended = cli("dataset", "rm", "tiny@1", "--cluster", "lab", "--yes", "--force")
    assert ended.out.splitlines()[-1] == "tiny@1 is removed"
    assert cli.api.named("datasets.remove") == [(("lab", "tiny", 1), {"force": True})]


def test_dataset_add_from_s3_sends_the_aws_keys_of_the_caller(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    done = operation("done", kind="dataset", kept=["/datasets/tiny/1"])
    cli.api.on("datasets.add", done).on("operations.events", []).on("operations.get", done)
    words = ("dataset", "add", "tiny", "--from", "s3://sets/tiny", "--cluster", "lab")
    ended = cli(*words, "--endpoint-url", "http://127.0.0.1:9000")
    assert ended.code == 0, ended.err
    (((*_, source), more),) = cli.api.named("datasets.add")
    assert (source, more["s3"].key_id, more["s3"].endpoint_url) == ("s3://sets/tiny", "AKIA", "http://127.0.0.1:9000")
    assert cli("dataset", "add", "tiny", "--from", "/d", "--endpoint-url", "http://x", "--cluster", "lab").code == 1
    assert cli(*words, "--endpoint-url", "ftp://x").code == 1
