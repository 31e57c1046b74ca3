"""whatif of a cluster is an operation of the server; its result is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.errors import CommandFailed
from tests.support.cli_fakes import Cli, cli, operation
from tests.support.site import whatif

__all__ = ["cli"]  # a fixture

RESULT = whatif.result("op-1", 1_795_000_000.0, "nodes +4")


def test_a_cluster_is_replayed_by_the_server(cli: Cli, tmp_path: Path) -> None:
    done = operation("done", kind="what-if")
    cli.api.on("clusters.whatif", done).on("operations.events", []).on("operations.get", done)
    cli.api.on("clusters.whatif_result", RESULT)
    (tmp_path / "policy.yaml").write_text("slurm: {PriorityWeightAge: '5'}\n")
    ended = cli("whatif", "lab", "--nodes", "+4", "--cap", "vision=16", "--policy", str(tmp_path / "policy.yaml"))
    assert ended.code == 0
    sent = next(call for call in cli.api.calls if call[0] == "clusters.whatif")
    assert sent[1][0] == "lab"
    request = sent[1][1]
    assert (request.nodes, request.caps, request.since) == (["+4"], ["vision=16"], "now-1days")
    assert request.policy == {"slurm": {"PriorityWeightAge": "5"}}
    lines = ended.out.splitlines()
    assert lines[0].split()[:5] == ["TEAM", "SIZE", "AS", "IT", "WAS"]
    assert next(line for line in lines if line.startswith("all")).endswith("10 min, 95 min")
    assert next(line for line in lines if line.startswith("utilisation")).split()[1:] == [
        "80.2",
        "%",
        "80.5",
        "%",
        "68.8",
        "%",
    ]
    assert "CHANGED: 1 job refused: Node count specification invalid: 901" in ended.err
    assert json.loads(cli("whatif", "lab", "-o", "json").out)["changes"] == ["nodes +4"]


def test_a_cluster_file_needs_a_trace(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("name: lab\nplan: h100-8\nnodes: 4\nssh_keys: []\n")
    ended = cli("whatif", str(tmp_path / "lab.yaml"))
    assert ended.code == 1
    assert "give --trace FILE" in ended.err
    assert cli.api.calls == []


def test_a_replay_that_fails_on_this_machine_says_why(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab.yaml").write_text(
        "name: lab\nplan: h100-8\nnodes: 4\nteams: {vision: {users: [alice]}}\nssh_keys: [ssh-ed25519 "
        "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f]\n"
    )
    (tmp_path / "jobs.txt").write_text(
        "JobID|User|Account|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|NNodes\n"
        "11|alice|vision|1795000000|1795000060|1795000160|100|5|COMPLETED|node=1,gres/gpu=8|1\n"
    )

    async def fail(*_: Any, **__: Any) -> None:
        raise CommandFailed(["podman", "run"], 125, "no space left on device")

    monkeypatch.setattr("headway.whatif.container.run_replay", fail)
    ended = cli("whatif", str(tmp_path / "lab.yaml"), "--trace", str(tmp_path / "jobs.txt"), "--nodes", "+2")
    assert ended.code == 1
    assert "no space left on device" in ended.err
