"""queue shows jobs in order, with nodes or reasons."""

from __future__ import annotations

import json

import pytest

from headway.schemas.clusters import StatusOut
from headway.schemas.jobs import ProgressOut
from tests.support.cli_fakes import Cli, cli, cluster, job

__all__ = ["cli"]  # a fixture


def test_queue_orders_jobs_by_state_and_shows_reasons(cli: Cli) -> None:
    jobs = [
        job(3, state="PENDING", reason="Resources", nodes=[], nodelist="", elapsed_s=0),
        job(2, progress=ProgressOut(step=120, loss=1.8734), restarts=1),
        job(1, state="FAILED", exit_code=2),
    ]
    cli.api.on("clusters.only_name", "lab").on("jobs.list", jobs).on("clusters.get", cluster())
    done = cli("queue")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["2", "3", "1"]
    assert "RUNNING x2" in lines[1]
    assert "1.873" in lines[1]
    assert "lab-1-[1-2]" in lines[1]
    assert "4:07" in lines[1]
    assert lines[2].endswith("(Resources)")
    assert lines[3].endswith("exit code 2")
    assert "SIMULATED" in lines[4]


@pytest.mark.parametrize("state", ["CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"])
def test_queue_shows_a_job_that_holds_nodes_before_waiting_ones_with_its_nodes(cli: Cli, state: str) -> None:
    waits = job(11, state="PENDING", nodes=[], nodelist="", reason="Resources")
    holds = job(12, state=state, reason="Prolog")
    cli.api.on("clusters.get", cluster("lab")).on("jobs.list", [waits, holds])
    _, first, second, *_ = cli("queue", "lab").out.splitlines()
    assert first.split()[0] == "12"
    assert first.endswith("lab-1-[1-2]")
    assert second.split()[0] == "11"


def test_queue_sends_its_filters_to_the_server(cli: Cli) -> None:
    cli.api.on("jobs.list", []).on("clusters.get", cluster())
    done = cli("queue", "lab", "-a", "-u", "bob", "-t", "running")
    assert done.out == "no jobs on lab\n"
    assert cli.api.named("jobs.list") == [(("lab",), {"all": True, "user": "bob", "state": "RUNNING"})]


def test_queue_does_not_call_real_gpus_simulated(cli: Cli) -> None:
    cli.api.on("jobs.list", [job()]).on("clusters.get", cluster(simulated_gpus=False))
    assert "SIMULATED" not in cli("queue", "lab").out


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("command", ["queue", "nodes"])
def test_queue_and_nodes_warn_about_stale_data(cli: Cli, command: str, output: str) -> None:
    old = cluster(stale="no SSH to lab-head")
    cli.api.on("jobs.list", []).on("clusters.get", old).on(
        "clusters.status", StatusOut(cluster=old, checks=[], nodes=[])
    )
    done = cli(command, "lab", "-o", output)
    assert done.code == 0
    assert output == "table" or json.loads(done.out) == []
    assert "this data is old: no SSH to lab-head; headway status lab" in done.err


def test_queue_watch_requires_a_terminal(cli: Cli) -> None:
    assert cli("queue", "lab", "-w").code == 1


def test_queue_watch_draws_until_interrupt_and_restores_the_screen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.api.on("jobs.list", [job()]).on("clusters.get", cluster())

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headway.cli.commands.jobs.queue.time.sleep", interrupt)
    done = cli("queue", "lab", "-w", terminal=True)
    assert done.code == 130
    assert "train_ddp" in done.out
    assert done.out.endswith("\x1b[?25h\x1b[?1049l")


def test_queue_escapes_control_characters_in_job_names(cli: Cli) -> None:
    cli.api.on("jobs.list", [job(name="x\x1b[2J\ny")]).on("clusters.get", cluster())
    done = cli("queue", "lab", terminal=True)
    assert "\x1b[2J" not in done.out
    assert "x?[2J?y" in done.out
