"""lineage show prints two trees."""

from __future__ import annotations

import json

from headway.schemas.lineage.lineage_graph import LineageGraphOut, LineageNodeOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture
NODES = [
    LineageNodeOut(key="model:vision/iris@3", kind="model", title="iris@3", detail="production · of team vision"),
    LineageNodeOut(key="job:12", kind="job", title="job 12", detail="train · alice", state="COMPLETED", job_id=12),
    LineageNodeOut(key="job:11", kind="job", title="job 11", detail="prepare · alice", job_id=11),
    LineageNodeOut(key="dataset:books@1", kind="dataset", title="books@1"),
    LineageNodeOut(key="code:1a2b", kind="code", title="commit 1a2b", detail="main"),
    LineageNodeOut(key="service:vision/chat", kind="service", title="chat", detail="of team vision"),
]
EDGES = [
    ("job:12", "model:vision/iris@3"), ("dataset:books@1", "job:12"), ("job:11", "job:12"), ("code:1a2b", "job:12"),
    ("dataset:books@1", "job:11"), ("model:vision/iris@3", "service:vision/chat"),
]  # fmt: skip
GRAPH = LineageGraphOut(
    cluster="lab", start="model:vision/iris@3", nodes=NODES, edges=EDGES, notes=["the graph is cut"]
)
TREES = """\
model iris@3  production · of team vision
made of
└─ job 12  train · alice  COMPLETED
   ├─ dataset books@1
   ├─ job 11  prepare · alice
   │  └─ dataset books@1
   └─ commit 1a2b  main
used by
└─ service chat  of team vision
"""


def test_lineage_is_two_trees(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("lineage.show", GRAPH)
    shown = cli("lineage", "show", "iris@3")
    assert shown.out == TREES
    assert "note: the graph is cut" in shown.err
    ((args, _),) = cli.api.named("lineage.show")
    assert args == ("lab", "iris@3")
    assert json.loads(cli("lineage", "show", "iris@3", "-o", "json").out)["edges"][0] == [
        "job:12",
        "model:vision/iris@3",
    ]
