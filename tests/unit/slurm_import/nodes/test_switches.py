"""Switches of a site: trees and blocks of topology.conf and topology.yaml become leaf switches of the cluster file."""

from __future__ import annotations

import pytest

from headway.slurm_import.verdicts import Kind
from tests.support.slurm_sites import imported, verdict

BLOCKS_CONF = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2,4\n"
TREE_YAML = """\
- topology: racks
  cluster_default: true
  tree:
    switches:
      - switch: top
        children: s[1-2]
      - switch: s1
        nodes: n[1-2]
      - switch: s2
        nodes: n[3-4]
"""
BLOCKS = [{"name": "b1", "nodes": 2}, {"name": "b2", "nodes": 2}, {"name": "spine", "children": ["b1", "b2"]}]
BLOCKS_YAML = """\
- topology: nvl
  cluster_default: true
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[1-2]
      - block: b2
        nodes: n[3-4]
"""


@pytest.mark.parametrize(
    ("file", "text", "switches"),
    [
        ("topology__conf", BLOCKS_CONF, BLOCKS),
        ("topology__yaml", BLOCKS_YAML, BLOCKS),
        (
            "topology__yaml", TREE_YAML,
            [{"name": "s1", "nodes": 2}, {"name": "s2", "nodes": 2}, {"name": "top", "children": ["s1", "s2"]}],
        ),
    ],
    ids=["blocks", "blocks in YAML", "tree in YAML"],
)  # fmt: skip
def test_leaves_are_carried_with_a_verdict_on_each_line(file: str, text: str, switches: list[object]) -> None:
    site = imported(**{file: text})
    assert site.spec["fabric"]["switches"] == switches
    assert site.faults == []
    of_file = [found for item, found in site.entries if item.file == file.replace("__", ".")]
    assert {found.place for found in of_file if found.kind is Kind.CARRIED} == {"fabric.switches"}


def test_sizes_of_blocks_are_named() -> None:
    found = verdict(imported(topology__conf=BLOCKS_CONF), "BlockSizes")
    assert (found.kind, bool(found.why), bool(found.instead)) == (Kind.NOT_CARRIED, True, True)
