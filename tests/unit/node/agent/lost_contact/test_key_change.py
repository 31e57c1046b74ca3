"""Head and node agents keep contact while the munge key changes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agent.lost_contact import key_change, sender_limits
from agent.roles import head, node

OLD, NEW = ("10.0.0.3", 40_001), ("10.0.0.4", 40_002)


class Munge:
    """Opens what was sealed with its key; counts what it was asked."""

    def __init__(self, key: bytes) -> None:
        self.key, self.asked, self.uid = key, 0, 0

    def seal(self, data: bytes) -> bytes:
        return self.key + data

    def open(self, sealed: bytes) -> tuple[bytes, int]:
        self.asked += 1
        if not sealed.startswith(self.key):
            raise OSError("MUNGE: Invalid credential")
        return sealed.removeprefix(self.key), self.uid


class Desk:
    def __init__(self, folder: Path) -> None:
        self.munge, self.changing = Munge(b"k1"), True
        self.keeper = head.NodeMessages(str(folder / "reports"), str(folder / "faults"), str(folder / "turns"))
        self.desk = head.HeadServer(self.keeper, self.munge, lambda: self.changing)

    def says(self, key: bytes, name: str, sender: tuple[str, int], at: float) -> bytes | None:
        answer: bytes | None = self.desk.answer(key + json.dumps({"node": name}).encode(), sender, at, at, at)
        return answer


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_head_accepts_heartbeats_with_the_other_key_during_key_change(desk: Desk) -> None:
    assert b'"got"' in (desk.says(b"k1", "lab-1-1", OLD, 100.0) or b"")
    desk.munge.key = b"k2"  # the head has the new one, the node has not
    assert desk.says(b"k1", "lab-1-1", OLD, 110.0) == key_change.UNREAD
    assert desk.keeper.beats == {"lab-1-1": 110.0}
    desk.changing = False
    assert desk.says(b"k1", "lab-1-1", OLD, 111.0) is None
    assert desk.keeper.beats == {"lab-1-1": 110.0}, "after that it is as silent as one that is cut off"


def test_head_answer_lists_other_live_nodes(desk: Desk) -> None:
    def others(name: str, sender: tuple[str, int], at: float) -> list[str]:
        told: list[str] = json.loads((desk.says(b"k1", name, sender, at) or b"").removeprefix(b"k1"))["others"]
        return told

    assert others("lab-1-1", OLD, 100.0) == []
    assert others("lab-1-2", NEW, 101.0) == [OLD[0]]
    assert others("lab-1-1", OLD, 106.5) == [], "the other one is silent by now"


def test_unknown_sender_is_not_accepted_during_key_change(desk: Desk) -> None:
    assert desk.says(b"k1", "lab-1-1", OLD, 100.0) is not None
    desk.munge.key = b"k2"
    assert desk.says(b"k1", "lab-1-1", (OLD[0], 50_000), 101.0) is None, "another program on the node"
    assert desk.says(b"k1", "lab-1-2", NEW, 101.0) is None
    assert desk.keeper.beats == {"lab-1-1": 100.0}


def test_head_ignores_messages_sealed_by_an_ordinary_user(desk: Desk) -> None:
    desk.munge.uid = 1000
    assert desk.says(b"k1", "lab-1-1", OLD, 100.0) is None
    assert desk.keeper.beats == {}


def test_head_limits_munge_calls_for_unreadable_messages(desk: Desk) -> None:
    assert desk.says(b"k1", "lab-1-1", OLD, 100.0) is not None
    asked = desk.munge.asked
    for port in range(1000):
        desk.says(b"xx", "lab-1-1", (OLD[0], 1024 + port), 200.2)
    assert desk.munge.asked - asked == sender_limits.MOST_BAD
    assert desk.says(b"k1", "lab-1-1", OLD, 200.3) is not None, "not even from the agent beside it"
    assert desk.says(b"k1", "lab-1-2", NEW, 200.3) is not None
    assert desk.says(b"k1", "lab-1-3", (OLD[0], 1024), 201.0) is not None, "the next second is another one"


def test_key_change_ends_after_its_time_limit(tmp_path: Path) -> None:
    mark = tmp_path / "keys-change"
    assert not key_change.key_change_begun(str(mark))
    mark.touch()
    assert key_change.key_change_begun(str(mark))
    for age_s in (key_change.CHANGE_S + 1, -60.0):
        os.utime(mark, (time.time() - age_s,) * 2)
        assert not key_change.key_change_begun(str(mark))
    assert key_change.CHANGE_S + 20 < 300, (
        "SlurmdTimeout: who can't be read for so long is given up, and runs no more by then"
    )


def test_unread_answer_renews_the_lease_only_during_key_change(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Any = Munge(b"k1")
    for changing, kept in ((True, True), (False, False)):
        monkeypatch.setattr(node, "key_change_begun", lambda now=changing: now)
        assert node.renews_lease(node.open_answer(key_change.UNREAD, opened)) is kept
    assert not node.renews_lease(node.open_answer(b"k2x", opened)), "what can't be read says nothing"
