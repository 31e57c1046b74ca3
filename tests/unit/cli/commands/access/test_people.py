"""people lists, sets and removes people."""

from __future__ import annotations

from headway.schemas.access.people import PersonIn, PersonOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_people_commands_set_list_and_remove_persons(cli: Cli) -> None:
    olga = PersonOut(name="olga", role="operator", user="olga", teams={"lab": ["red"]})
    cli.api.on("people.put", olga).on("people.list", [olga]).on("people.delete", None)
    assert cli("people", "set", "olga", "operator").out == "olga is operator, on clusters as olga\n"
    cli("people", "set", "olga", "operator", "--user", "")
    assert [call[0] for call in cli.api.named("people.put")] == [
        ("olga", PersonIn(role="operator")), ("olga", PersonIn(role="operator", user=""))
    ]  # fmt: skip
    assert "lab/red" in cli("people", "ls").out
    assert cli("people", "rm", "olga").out == "olga is removed\n"


def test_people_commands_disable_and_enable_and_show_what_is_not_done_yet(cli: Cli) -> None:
    waits = {"lab": "no head of lab runs"}
    olga = PersonOut(name="olga", role="operator", user="olga", disabled=True, changes_due=waits)
    cli.api.on("people.disable", olga).on("people.enable", olga).on("people.list", [olga])
    told = cli("people", "disable", "olga")
    assert told.out == "olga is disabled\n"
    assert "lab" in told.err
    assert "operator (disabled, lab: no head of lab runs)" in cli("people", "ls").out
    assert cli("people", "enable", "olga").out == "olga is enabled\n"
    assert cli.api.named("people.disable") == cli.api.named("people.enable") == [(("olga",), {})]
