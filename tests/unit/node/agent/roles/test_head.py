"""The head's agent stores each fault once, within a bound, and on a full disk loses none."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.roles import head as relay


def test_relay_stores_each_fault_once_and_acknowledges_it(tmp_path: Path) -> None:
    spool = tmp_path / "faults.jsonl"
    fault = {"id": "lab-1-1-b00t-5-9000000", "at": 999.0, "code": 79, "gpu": 2, "job": 12, "text": "off the bus"}
    data = json.dumps({"node": "lab-1-1", "faults": [fault]}).encode()
    head = relay.NodeMessages(str(tmp_path / "reports"), str(spool))
    answer = head.receive(data, 1000.5, 1000.5)
    assert answer == {"got": ["lab-1-1-b00t-5-9000000"], "now": 1000.5, "leads": True, "controller": 0, "others": []}
    again = relay.NodeMessages(str(tmp_path / "reports"), str(spool))  # started again; the answer was lost
    assert again.receive(data, 1001.5, 1001.5) == {**answer, "now": 1001.5}
    rows = [json.loads(row) for row in spool.read_text().splitlines()]
    assert [(row["node"], row["code"]) for row in rows] == [("lab-1-1", 79)]
    assert again.beats == {"lab-1-1": 1001.5}
    assert head.receive(b'{"node": "../x", "faults": [{"id": "1"}]}', 1.0, 1.0) is None


def test_fault_spool_is_bounded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(relay, "MOST_FAULTS", 10)
    head = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "f"))
    for number in range(100):
        head.receive(json.dumps({"node": "n1", "faults": [{"id": str(number)}]}).encode(), 1.0, 1.0)
    kept = [json.loads(row)["id"] for row in (tmp_path / "f").read_text().splitlines()]
    assert len(kept) <= 10
    assert kept[-1] == "99"


def test_relay_accepts_heartbeats_while_its_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "faults"), str(tmp_path / "turns"))
    beat = {"node": "lab-1-1", "jobs": {"7": {"n": "1", "step": 5}}, "faults": [{"id": "a"}]}

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(relay, "_append", full)
        answer = kept.receive(json.dumps(beat).encode(), 1000.0, 1000.0)
    assert answer is not None
    assert (answer["got"], kept.beats) == ([], {"lab-1-1": 1000.0}), "the node says its fault again"
    answer = kept.receive(json.dumps(beat).encode(), 1001.0, 1001.0)
    assert answer is not None
    assert answer["got"] == ["a"]


def test_append_leaves_no_partial_line_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "faults"
    relay._append(str(path), "whole", sync=True)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            relay._append(str(path), "half", sync=True)
    relay._append(str(path), "next", sync=True)
    assert path.read_text() == "whole\nnext\n"


def test_all_of_a_message_is_synced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    head = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "faults"))
    faults = [{"id": f"f{number}", "at": 1.0} for number in range(20)]
    bad, fine = {"check": "disk", "state": "bad", "action": "drain"}, {"check": "disk", "state": "ok", "action": "none"}
    checks = [{"id": "c1", **bad}, {"id": "c2", **fine}, {"id": "c3", **fine}]
    answer = head.receive(json.dumps({"node": "n1", "faults": faults, "checks": checks}).encode(), 1.0, 1.0)
    assert answer is not None
    assert answer["got"] == [row["id"] for row in (*faults, *checks)]
    assert len(synced) == 1
    rows = [json.loads(row)["id"] for row in (tmp_path / "faults").read_text().splitlines()]
    assert rows == [*(f"f{number}" for number in range(20)), "c1", "c2"], "what was ok and is ok is no news"


def test_nodes_that_sent_lately_are_listed_once_a_second_not_for_each_message(tmp_path: Path) -> None:
    class Addresses(dict[str, str]):
        read = 0

        def items(self) -> Any:
            self.read += 1
            return super().items()

    head = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "faults"))
    head.addresses = addresses = Addresses({f"n{number}": f"10.0.0.{number}" for number in range(200)})
    for at in (100.0, 101.5):
        for number in range(200):
            answer = head.receive(json.dumps({"node": f"n{number}"}).encode(), at + number / 1000, at + number / 1000)
            assert answer is not None
    assert len(answer["others"]) == relay.MOST_OTHERS
    assert f"10.0.0.{number}" not in answer["others"]
    assert addresses.read <= 4


def test_head_goes_on_when_a_file_is_gone(tmp_path: Path) -> None:
    head = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "faults"))
    (tmp_path / "reports" / "7.jsonl").symlink_to("gone")  # stat fails as for a file that was just removed
    head.forget_old(1.0)


def row(state: str, at: float = 5.0) -> dict[str, Any]:
    return {"check": "gpu_count", "at": at, "state": state, "reason": "r", "action": "reboot", "gpu": 3}


def test_relay_spools_only_changed_results_even_after_a_restart(tmp_path: Path) -> None:
    spool = tmp_path / "f"

    def tell(head: Any, number: int, state: str) -> None:
        result = {**row(state, float(number)), "id": f"lab-1-1-{number}"}
        head.receive(json.dumps({"node": "lab-1-1", "faults": [], "checks": [result]}).encode(), 1.0, 1.0)

    head = relay.NodeMessages(str(tmp_path / "reports"), str(spool))
    tell(head, 1, "bad")
    head = relay.NodeMessages(str(tmp_path / "reports"), str(spool))
    tell(head, 2, "bad")  # the node's agent was started again and says it once more
    tell(head, 3, "warn")
    assert [json.loads(line)["state"] for line in spool.read_text().splitlines()] == ["bad", "warn"]


def test_head_tells_a_node_that_woke_up_how_long_it_missed_it(tmp_path: Path) -> None:
    head = relay.NodeMessages(str(tmp_path), str(tmp_path / "faults.jsonl"), str(tmp_path / "turns.jsonl"))

    def says(at: float, active: float, **more: int) -> dict[str, Any]:
        return head.receive(json.dumps({"node": "n1", **more}).encode(), at, active) or {}

    assert says(1000.0, 100.0, woke=1)["missed_s"] is None, "this agent may have started a moment ago"
    assert "missed_s" not in says(1001.0, 101.0)
    assert says(1001.2, 101.2, woke=1)["missed_s"] is None, "the message before the question does not hide it"
    assert says(1003.2, 103.2, woke=1)["missed_s"] == 2.0, "a later question is not about the time before this agent"
    for second in range(40):
        says(1002.0 + second, 102.0 + second)
    says(1071.0, 144.0)  # both stood still: the head's clock left 27 s out
    assert says(1071.2, 144.2, woke=2)["missed_s"] == 3.0
    says(1101.2, 174.2)  # the node alone stood still
    assert says(1101.4, 174.4, woke=3)["missed_s"] == 30.0, "the message before the question does not hide it"
    for second in range(40):
        says(1102.0 + second, 175.0 + second)
    assert says(1143.0, 216.0, woke=4)["missed_s"] <= 2.0
