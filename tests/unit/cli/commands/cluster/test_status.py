"""ls and status print the right facts."""

from __future__ import annotations

import json

import pytest

from headway.schemas.clusters import CheckOut, GroupOut, StatusOut
from tests.support.cli_fakes import Cli, cli, cluster, node

__all__ = ["cli"]  # a fixture


def status(**others: object) -> StatusOut:
    fields = {
        "cluster": cluster(),
        "checks": [CheckOut(name="controller", ok=True, message="slurmctld answers")],
        "nodes": [node("lab-head", role="head", gpus=[], states=[]), node("lab-1-1", used=4), node("lab-1-2")],
    } | others
    return StatusOut.model_validate(fields)


def test_ls_lists_clusters_with_gpu_usage(cli: Cli) -> None:
    cli.api.on("clusters.list", [cluster(), cluster("big", simulated_gpus=False, state="degraded")])
    lines = cli("ls").out.splitlines()
    assert "12/40 SIMULATED" in lines[1]
    assert "4+1" in lines[1]
    assert "SIMULATED" not in lines[2]
    assert [c["name"] for c in json.loads(cli("ls", "-o", "json").out)] == ["lab", "big"]


def test_ls_without_clusters_suggests_headway_init(cli: Cli) -> None:
    cli.api.on("clusters.list", [])
    assert "headway init" in cli("ls").out
    assert json.loads(cli("ls", "-o", "json").out) == []


def test_status_of_a_ready_cluster_shows_nodes_jobs_and_checks(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("clusters.status", status())
    done = cli("status")
    assert done.code == 0
    assert "lab is ready: 4 nodes and 1 spare of h100-8, Slurm 24.11\n1 job running, 2 waiting\n" in done.out
    assert "ok    controller  slurmctld answers\n" in done.out
    assert "████░░░░ 4/8" in done.out
    assert "SIMULATED" in done.out


def test_status_shows_machines_and_price_of_each_group(cli: Cli) -> None:
    groups = [
        GroupOut(name="gpu", plan="h100-8", nodes=2, max=4, machines=3, spares=1, price_usd_per_node_hour="31.20"),
        GroupOut(name="cheap", plan="h100-8", nodes=0, max=8, machines=1, spot=True, idle_s=600),
    ]
    cli.api.on("clusters.only_name", "lab").on("clusters.status", status(cluster=cluster(groups=groups)))
    lines = cli("status").out.splitlines()
    assert "gpu: 3 machines of h100-8; 2 wanted and 1 spare, $31.20 a node and hour" in lines
    assert "cheap: 1 machine of h100-8, spot; 0 to 8 on demand" in lines


@pytest.mark.parametrize("output", ["table", "json"])
def test_status_of_an_unready_cluster_exits_with_1(cli: Cli, output: str) -> None:
    bad = [CheckOut(name="nodes", ok=False, message="lab-1-2 is down\nheadway apply gives it back")]
    cli.api.on("clusters.status", status(checks=bad))
    done = cli("status", "lab", "-o", output)
    assert done.code == 1
    if output == "table":
        assert "FAIL  nodes  lab-1-2 is down\n             headway apply gives it back\n" in done.out
    else:
        assert json.loads(done.out)["checks"][0]["ok"] is False


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_color_and_dumb_terminal_disable_colours(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    cli.api.on("clusters.status", status())
    assert "\x1b" not in cli("status", "lab", terminal=True).out


def test_status_in_a_pipe_has_no_colours(cli: Cli) -> None:
    cli.api.on("clusters.status", status())
    assert "\x1b" not in cli("status", "lab").out
