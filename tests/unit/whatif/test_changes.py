"""Changes of a cluster file for a what-if."""

from __future__ import annotations

import pytest

from headway.errors import HeadwayError
from headway.whatif.changes import Changes, changed_file
from tests.unit.whatif.clusters import lab, lab_file


@pytest.mark.parametrize(("text", "nodes"), [("+4", 8), ("-1", 3), ("12", 12), ("main=+2", 6)])
def test_nodes(text: str, nodes: int) -> None:
    name = lab().groups[0].name
    assert changed_file(lab_file(), lab(), Changes(nodes=(text.replace("main", name),)))["nodes"] == nodes


def test_caps_and_policy_leave_the_file_itself_unchanged() -> None:
    spec = lab_file()
    policy = {"slurm": {"PriorityWeightAge": "5"}, "fabric": None}
    made = changed_file(spec, lab(), Changes(caps=("vision=16",), policy=policy))
    assert made["teams"]["vision"] == {"users": ["alice", "vera"], "limits": {"gpus": 16}}
    assert made["slurm"] == {"PriorityWeightAge": "5"}
    assert spec == lab_file()
    assert changed_file(made, lab(), Changes(caps=("vision=none",)))["teams"]["vision"]["limits"] == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(nodes=("four",)), "no number of nodes"),
        (Changes(nodes=("-9",)), "9 can't be removed"),
        (Changes(nodes=("cpu=+1",)), "no group 'cpu'"),
        (Changes(caps=("vision",)), "is no limit"),
        (Changes(caps=("nlp=3",)), "no team 'nlp'"),
    ],
)
def test_impossible_changes_name_the_next_step(changes: Changes, message: str) -> None:
    with pytest.raises(HeadwayError, match=message) as caught:
        changed_file(lab_file(), lab(), changes)
    assert caught.value.hint
