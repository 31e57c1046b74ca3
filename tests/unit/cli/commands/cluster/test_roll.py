"""roll shows its plan, asks before it touches a machine, sends the right request to the server, and follows a roll
that resumes after another operation."""

from __future__ import annotations

import json

import pytest

from headway.domain.changeset import Disturbs
from headway.schemas.clusters import ChangeOut, ChangeSetOut
from tests.support.cli_fakes import Cli, cli, operation

__all__ = ["cli"]  # a fixture


def changes(*names: str) -> ChangeSetOut:
    rows = [
        ChangeOut(
            kind="machine.rebuild",
            where=name,
            what=name,
            why="will be rebuilt from new",
            disturbs=Disturbs.REBUILD.value,
        )
        for name in names
    ]
    return ChangeSetOut(
        cluster="lab", changes=rows, disturbing=len(rows), why_empty="" if rows else "every node runs new"
    )


def test_roll_dry_run_prints_the_plan_and_starts_no_roll(cli: Cli) -> None:
    cli.api.on("clusters.plan_roll", changes("lab-1-1", "lab-1-2"))
    output = cli("roll", "lab", "--dry-run", "--by", "2h").out
    assert "machine.rebuild on lab-1-[1-2]: rebuild (will be rebuilt from new)" in output
    assert cli.api.named("clusters.plan_roll") == [(("lab",), {"back": False, "head": False, "by_s": 7200})]
    assert cli.api.named("clusters.roll") == []
    assert json.loads(cli("roll", "lab", "--dry-run", "-o", "json").out)["disturbing"] == 2


def test_roll_requires_confirmation(cli: Cli) -> None:
    cli.api.on("clusters.plan_roll", changes("lab-1-1"))
    ended = cli("roll", "lab")
    assert ended.code == 3
    assert "1 machine would be rebuilt" in ended.err


def test_roll_follows_the_operation_that_continues_it(cli: Cli) -> None:
    first, second = operation("done", kind="roll", kept=["op-2"]), operation("done", kind="roll")
    answers = iter([first, second, second])
    cli.api.on("clusters.plan_roll", changes("lab-1-1")).on("clusters.roll", first).on("operations.events", [])
    cli.api.on("operations.get", lambda _: next(answers))
    ended = cli("roll", "lab", "--yes", "--back", "--head")
    assert "continues as operation op-2" in ended.err
    assert ended.out.splitlines()[-1].startswith("lab is rolled")
    assert cli.api.named("clusters.roll") == [(("lab",), {"back": True, "head": True, "by_s": None})]


def test_roll_stop_ends_a_waiting_roll(cli: Cli) -> None:
    done = operation("done", kind="roll")
    cli.api.on("clusters.roll", done).on("operations.events", []).on("operations.get", done)
    assert cli("roll", "lab", "--stop").out.splitlines()[-1].startswith("the roll of lab has stopped")
    assert cli.api.named("clusters.roll") == [(("lab",), {"stop": True})]


@pytest.mark.parametrize(
    ("word", "seconds"), [("90s", 90), ("30m", 1800), ("1d", 86_400), ("0", 0), ("02:00:00", 7200)]
)
def test_roll_by_accepts_durations_with_units(cli: Cli, word: str, seconds: int) -> None:
    cli.api.on("clusters.plan_roll", changes())
    cli("roll", "lab", "--dry-run", "--by", word)
    assert cli.api.named("clusters.plan_roll")[0][1]["by_s"] == seconds


@pytest.mark.parametrize("word", ["soon", "8d", "-1h", "h"])
def test_roll_by_refuses_an_invalid_duration(cli: Cli, word: str) -> None:
    ended = cli("roll", "lab", "--by", word)
    assert ended.code == 2
    assert "--by" in ended.err
