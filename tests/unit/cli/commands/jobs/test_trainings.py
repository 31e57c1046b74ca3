"""trainings, job compare and job note send the right requests and print the answers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from headway.schemas.trainings import (
    DifferenceOut,
    TrainingComparisonOut,
    TrainingCostOut,
    TrainingGroupOut,
    TrainingGroupsOut,
    TrainingNoteIn,
    TrainingOriginOut,
    TrainingOut,
    TrainingsOut,
    TrainingValuesOut,
)
from tests.support.cli_fakes import Cli, cli, cluster

__all__ = ["cli"]  # a fixture

LOSS = TrainingValuesOut(step=90, last=1.25, lowest=1.125, highest=7.5)


def training(**fields: Any) -> TrainingOut:
    told = {"job": 12, "label": "12", "name": "gpt", "user": "alice", "team": "vision", "state": "COMPLETED"}
    return TrainingOut(**{**told, "submitted_at": 1.0, "reported_at": 2.0, "metrics": {"loss": LOSS}, **fields})


def test_trainings_are_listed_with_chosen_values(cli: Cli) -> None:
    cost = TrainingCostOut(runs=2, gpu_hours=24, usd=Decimal("48.00"), energy_kwh=1.0)
    rows = [
        training(restarts=1, cost=cost, origin=TrainingOriginOut(commit="a1b2c3d4e5", dirty=True), tags=["base"]),
        training(label="13_2", metrics={"loss": TrainingValuesOut(step=1)}),
    ]
    found = TrainingsOut(cluster="lab", total=9, trainings=rows, names=["loss"])
    cli.api.on("clusters.get", cluster("lab")).on("jobs.trainings", found)
    done = cli("trainings", "lab", "-m", "loss:lowest", "--where", "loss<2", "--state", "completed", "--sort", "loss")
    head, first, second = done.out.splitlines()
    assert head.split() == [
        "JOB",
        "NAME",
        "USER",
        "STATE",
        "loss:lowest",
        "RESTARTS",
        "GPU-HOURS",
        "USD",
        "COMMIT",
        "TAGS",
    ]
    assert first.split() == ["12", "gpt", "alice", "COMPLETED", "1.125", "1", "24.00", "48.00", "a1b2c3d4+", "base"]
    assert "not finite" in second
    assert "7 further trainings" in done.err
    sent = cli.api.calls[-1][2]
    assert (sent["where"], sent["state"], sent["sort"], sent["limit"]) == (["loss<2"], ["COMPLETED"], "loss", 50)


def test_groups_name_the_best_training(cli: Cli) -> None:
    group = TrainingGroupOut(
        value="alice", trainings=2, gpu_hours=32.0, usd=Decimal(64), lowest=1.5, mean=1.75, highest=5.0
    )
    group.lowest_job, group.highest_job = 2, 1
    found = TrainingGroupsOut(cluster="lab", by="user", metric="loss", groups=[group])
    cli.api.on("clusters.get", cluster("lab")).on("jobs.training_groups", found)
    out = cli("trainings", "lab", "--by", "user", "-m", "loss:lowest").out
    assert "1.5 (job 2)" in out
    assert "loss LOWEST" in out


def test_comparison_prints_differences_lines_and_metrics(cli: Cli) -> None:
    script = DifferenceOut(what="script", lines=["@@ -1 +1 @@", "-lr 1", "+lr 2\x1b[31m"])
    found = TrainingComparisonOut(
        first=12, second=15, differences=[DifferenceOut(what="commit", first="aaa", second="bbb"), script], same=["launcher"],
        metrics={"loss": (LOSS, None)},
    )  # fmt: skip
    cli.api.on("clusters.get", cluster("lab")).on("jobs.compare", found)
    done = cli("job", "compare", "lab", "12", "15")
    assert "1.25 (1.125 to 7.5) at step 90" in done.out
    assert done.out.splitlines()[-1] == "  +lr 2?[31m"
    assert "the same: launcher" in done.err


@pytest.mark.parametrize("words", [["12"], ["12", "13", "14"], ["12_1", "13"]])
def test_comparison_wants_two_jobs(cli: Cli, words: list[str]) -> None:
    done = cli("job", "compare", "lab", *words)
    assert (done.code, "give two job ids" in done.err) == (2, True)


def test_note_changes_text_and_tags(cli: Cli) -> None:
    cli.api.on("clusters.get", cluster("lab")).on("jobs.annotate", training(note="rate halved", tags=["base"]))
    out = cli("job", "note", "lab", "12", "--text", "rate halved", "--tag", "base", "--untag", "old").out
    assert out == "job 12: base; rate halved\n"
    request = cli.api.calls[-1][1][-1]
    assert request == TrainingNoteIn(note="rate halved", add_tags=["base"], remove_tags=["old"])
