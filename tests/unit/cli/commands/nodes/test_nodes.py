"""nodes prints a table that fits the terminal."""

from __future__ import annotations

import re

import pytest

from headway.cli.output.terminal import display_width
from headway.schemas.clusters import StatusOut
from tests.support.cli_fakes import Cli, cli, cluster, node

__all__ = ["cli"]  # a fixture

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def test_nodes_highlights_a_dead_node_in_red(cli: Cli) -> None:
    dead = node(
        "lab-1-3", used=8, states=["DOWN", "NOT_RESPONDING"], usable=False, machine="stopped", reason="no pulse"
    )
    cli.api.on("clusters.status", StatusOut(cluster=cluster(), checks=[], nodes=[dead]))
    out = cli("nodes", "lab", terminal=True).out
    assert "\x1b[1;31mdown, machine stopped" in out
    assert "\x1b[1;31m█\x1b[0m" in out
    assert "no pulse" in out


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_nodes_table_fits_the_terminal_width(cli: Cli, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    many = [node(f"lab-1-{i}", used=i % 9, reason="a long reason that fills the whole column") for i in range(9)]
    cli.api.on("clusters.status", StatusOut(cluster=cluster(), checks=[], nodes=many))
    lines = [ANSI.sub("", line) for line in cli("nodes", "lab", terminal=True).out.splitlines()]
    table = lines[:-1]
    assert max(map(display_width, table)) <= width
    assert all(re.search(r"[█░]{8} \d/8", line) for line in table[1:])
