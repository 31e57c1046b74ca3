"""serve sends its file, and prints address, figures and replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.schemas.serving.services import ReplicaOut, ServiceKeyOut, ServiceOut
from headway.schemas.submission.run_request import ScriptLine
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def service(**fields: object) -> ServiceOut:
    replicas = [
        ReplicaOut(number=1, version=1, state="ended", since=0, job_id=5, why="exit code 1", failed=True, ended_at=5),
        ReplicaOut(
            number=2, version=1, state="serving", since=0, job_id=6, node="n1", port=17001, sessions=3, requests=70
        ),
    ]
    base = {
        "id": "v-1", "cluster": "lab", "team": "red", "name": "chat", "person": "a", "user": "a", "created_at": 0,
        "state": "running", "url": "http://h:8470/serve/red/chat", "min": 1, "max": 4, "wanted": 2, "healthy": 1,
        "replicas": replicas, "requests": 1234, "active": 3, "first_byte_ms": 12,
    }  # fmt: skip
    return ServiceOut.model_validate({**base, **fields})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("name: chat\nrun: serve\n")


def test_show_prints_address_figures_and_replicas(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("services.get", service()).on("services.list", [service()])
    shown = cli("serve", "show", "red/chat").out
    assert cli.api.calls[-1][1] == ("lab", "red:chat")
    for text in (
        "http://h:8470/serve/red/chat",
        "1 of 2 replicas healthy (limits: 1 to 4)",
        "1,234 requests, 3 active",
    ):
        assert text in shown
    assert "failed" in shown
    assert "exit code 1" in shown
    assert "1/2" in cli("serve", "ls").out


def test_dry_run_prints_the_script_and_uploads_nothing(cli: Cli) -> None:
    planned = service(id="", state="planned", script=[ScriptLine(text="#SBATCH --time=60", origin="--time")])
    cli.api.on("clusters.only_name", "lab").on("services.start", planned)
    assert "#SBATCH --time=60" in cli("serve", "up", "s.yaml", "--dry-run").out


def test_scale_sets_both_limits_unless_a_largest_is_given(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("services.scale", service())
    cli("serve", "scale", "chat", "3")
    assert cli.api.calls[-1][1] == ("lab", "chat", 3, 3)
    cli("serve", "scale", "chat", "0", "--max", "2")
    assert cli.api.calls[-1][1] == ("lab", "chat", 0, 2)


def test_key_is_printed_alone(cli: Cli) -> None:
    made = ServiceKeyOut(id="k1", service="red/chat", label="", person="a", created_at=0, key="hws_x")
    cli.api.on("clusters.only_name", "lab").on("services.create_key", made).on("services.keys", [made])
    assert cli("serve", "key", "create", "chat").out == "hws_x\n"
    listed = cli("serve", "key", "ls", "chat").out
    assert "k1" in listed
    assert "hws_x" not in listed
