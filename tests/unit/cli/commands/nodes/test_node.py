"""node history prints the faults of a node."""

from __future__ import annotations

import json

from headway.schemas.nodes.incidents import NodeHistoryOut
from tests.support.cli_fakes import Cli, cli, incident

__all__ = ["cli"]  # a fixture


def test_node_history_prints_score_and_incidents(cli: Cli) -> None:
    found = NodeHistoryOut(
        node="lab-1-2", score=9, limit=8, days=14, why_out="fails too often", incidents=[incident(), incident(2)]
    )
    cli.api.on("clusters.only_name", "lab").on("nodes.history", found)
    lines = cli("node", "history", "lab-1-2").out.splitlines()
    assert lines[0] == "lab-1-2: score 9 of 8 over 14 days; fails too often"
    assert [line.split()[0] for line in lines[3:]] == ["3", "2"]
    assert json.loads(cli("node", "history", "lab-1-2", "-o", "json").out)["score"] == 9
