"""test fabric prints a matrix and the verdict."""

from __future__ import annotations

import json

from tests.support.cli_fakes import Cli, cli, operation
from tests.support.site import fabric

__all__ = ["cli"]  # a fixture


def test_last_result_is_a_matrix_with_what_is_slow(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "demo").on("nodes.fabric_test", fabric.result())
    ended = cli("test", "fabric", "--last")
    lines = ended.out.splitlines()
    assert ended.code == 1, "something is slow"
    row = next(line for line in lines if line.startswith("demo-1-3")).split()
    assert row == ["demo-1-3", "41.2!", "41.2!", "41.2!", "41.2!"]
    assert "slow: all-reduce with demo-1-3 reaches 41.2 GB/s, 380 GB/s expected (incident 2)" in lines
    assert "left out: demo-1-5: a job started on it" in lines
    assert "SIMULATED GPUs: figures are those of gloo on the CPU." in lines
    place = lines.index("mismatch: NCCL_SOCKET_IFNAME=eth9 in /etc/nccl.conf of demo-1-1 matches no interface (eth0)")
    assert lines[place + 1].strip().startswith("name one of these or remove the line")
    assert any(line.startswith("unclear: demo-1-2,demo-2-1") for line in lines)


def test_test_is_followed_and_its_result_printed(cli: Cli) -> None:
    sound = fabric.result().model_copy(update={"findings": [], "unclear": [], "skipped": []})
    done = operation("done", kind="fabric test")
    cli.api.on("nodes.test_fabric", done).on("operations.events", []).on("operations.get", done)
    cli.api.on("nodes.fabric_test", sound)
    ended = cli("test", "fabric", "lab", "--nodes", "lab-1-[1-2]")
    assert ended.code == 0
    assert ended.out.splitlines()[-1] == "demo: nothing slow was named, in 31 s"
    assert json.loads(cli("test", "fabric", "lab", "-o", "json").out)["seconds"] == 31.4
