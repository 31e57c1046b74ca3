"""The ledger of a real cluster stores each run of a job and of a requeued job once, as in Slurm's accounting, with
its payer."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.cluster.lab import Lab

from headway.slurm.accounting.team_job_hold import hold_team_jobs_argv

HERE = Path(__file__).parent
COLUMNS = ("productive_usd", "lost_usd", "allocated_idle_usd", "idle_usd", "spare_usd", "broken_usd", "fixed_usd")


def runs_of(lab: Lab, job: int) -> list[Any]:
    return lab.client.billing.usage_runs(lab.name, job=job, start="2020-01-01").runs  # a month may just have begun


def test_ledger_has_each_run_of_a_requeued_job_once_and_matches_the_invoice(lab: Lab) -> None:
    plain = lab.sbatch("sonia", "--gpus=2", wrap="sleep 2")
    requeued = lab.sbatch("stan", "--gpus=1", "--requeue", wrap='[ "$SLURM_RESTART_COUNT" ] || sleep 300')
    lab.wait_job(requeued, "RUNNING")
    lab.head("scontrol", "requeue", str(requeued))
    assert lab.wait_job(plain) == "COMPLETED"
    assert lab.wait_job(requeued) == "COMPLETED"

    def accounted() -> bool:
        ended = [(one.state, one.end) for job in (plain, requeued) for one in runs_of(lab, job)]
        return len(ended) == 3 and all(end for _, end in ended)

    lab.wait(accounted, "accounting to know of three ended runs")
    assert [one.state for one in runs_of(lab, plain)] == ["COMPLETED"]
    first, again = runs_of(lab, requeued)
    assert (first.state, again.state) == ("REQUEUED", "COMPLETED")
    assert first.end <= again.start
    assert first.lost_s == first.elapsed_s  # it wrote no checkpoint
    assert again.lost_s == 0

    # With a distant end: a run that began in this second and has no whole second is not yet before now.
    ever = {"start": "2020-01-01", "end": "2100-01-01"}
    span = ("--from", ever["start"], "--to", ever["end"])
    used = lab.cli("usage", lab.name, "--by", "user", *span, "-o", "json").json()
    by_user = {row["by"]["user"]: row for row in used["rows"]}
    for user in ("sonia", "stan"):
        assert by_user[user]["runs"] == len(lab.client.billing.usage_runs(lab.name, user=user, **ever).runs)
    assert by_user["sonia"]["gpu_hours"] * 3600 >= 2 * 2 - 0.5
    assert used["simulated"] is True
    lab.client.billing.rebuild_ledger(lab.name)
    assert [(one.start, one.state) for one in runs_of(lab, requeued)] == [
        (first.start, "REQUEUED"), (again.start, "COMPLETED"),
    ]  # fmt: skip

    paid = lab.cli("chargeback", lab.name, "-o", "json").json()
    exact = {team["team"]: sum(Decimal(str(team[column])) for column in COLUMNS) for team in paid["teams"]}
    assert exact == {team["team"]: Decimal(str(team["total_usd"])) for team in paid["teams"]}
    whole = sum(exact.values()) + sum(Decimal(str(one["usd"])) for one in paid["unassigned"])
    assert whole == Decimal(str(paid["invoice_total_usd"])) > 0
    assert {"vision", "speech", "small"} <= exact.keys()
    bill = lab.cli("invoice", lab.name, "-o", "json").json()
    assert {(line["what"], line["usd_per_hour"]) for line in bill["lines"]} == {("node", 23.92)}
    assert "speech" in lab.cli("goodput", lab.name).out


def test_estimate_shows_price_and_start_without_submitting(lab: Lab) -> None:
    before = lab.head("squeue", "-h", "-o", "%A", "-u", "saul").out
    output = lab.cli(
        "submit",
        lab.name,
        "--as",
        "saul",
        "--estimate",
        "--json",
        "--gpus-per-node=8",
        "-N2",
        "-t",
        "60",
        "--wrap",
        "true",
    ).json()
    assert (output["gpus"], output["nodes"], output["usd"], output["gpu_hours"]) == (16, 2, 47.84, 16.0)
    assert output["start"] > 0
    assert output["team"] == "speech"
    assert lab.head("squeue", "-h", "-o", "%A", "-u", "saul").out == before


def test_held_team_starts_no_jobs_while_running_ones_continue(lab: Lab) -> None:
    runs = lab.sbatch("sara", wrap="while [ ! -e go ]; do sleep 0.1; done")
    lab.wait_job(runs, "RUNNING")
    for argv in hold_team_jobs_argv("speech", on=True):
        lab.head(*argv)
    try:
        waits = lab.sbatch("sara", wrap="true")
        lab.wait(lambda: lab.field(waits, "Reason") == "MaxJobsPerAccount", "the job to wait for the limit")
        assert lab.state_of(runs) == "RUNNING"
        planned = lab.cli("plan", str(HERE.parent / "lab.yaml"))
        assert "speech" not in planned.out
    finally:
        for argv in hold_team_jobs_argv("speech", on=False):
            lab.head(*argv)
    assert lab.wait_job(waits) == "COMPLETED"
    lab.head("touch", "/home/sara/go", user="sara")
    assert lab.wait_job(runs) == "COMPLETED"
