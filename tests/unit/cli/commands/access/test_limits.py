"""limits prints a person's own limits with their units."""

from __future__ import annotations

from headway.schemas.access.own_limits import LimitOut, LimitsOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_limits_are_printed_with_their_units(cli: Cli) -> None:
    rows = [
        LimitOut(where="team vision", what="recent GPU-hours", unit="GPU-hours", used=412.5, limit=2000.0),
        LimitOut(where="partition debug", what="GPUs", unit="GPUs", used=None, limit=4),
        LimitOut(where="/home/alice", what="size of files", unit="bytes", used=3 << 29, limit=100 << 30),
    ]
    cli.api.on("clusters.limits", LimitsOut(cluster="lab", user="alice", limits=rows, stale="lab-head is away"))
    told = cli("limits", "lab")
    assert [line.split() for line in told.out.splitlines()] == [
        ["WHERE", "WHAT", "USED", "LIMIT"],
        ["team", "vision", "recent", "GPU-hours", "412.5", "2,000"],
        ["partition", "debug", "GPUs", "-", "4"],
        ["/home/alice", "size", "of", "files", "1.5", "GiB", "100.0", "GiB"],
    ]
    assert "lab-head is away" in told.err


def test_person_without_limits_is_told_so(cli: Cli) -> None:
    cli.api.on("clusters.limits", LimitsOut(cluster="lab", user="alice", limits=[]))
    assert cli("limits", "lab").err == "alice has no limits of its own on lab\n"
