from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent import heartbeats


def test_summary_distinguishes_silent_nodes_from_an_absent_head_agent(tmp_path: Path) -> None:
    path = str(tmp_path / "beats.json")
    assert heartbeats.heartbeat_summary(path, 100.0) == {"relay": -1}
    heartbeats.write_heartbeats(path, {"n1": 100.0, "n2": 91.0})
    os.utime(path, (100.0, 100.0))
    assert heartbeats.heartbeat_summary(path, 101.0) == {"alive": 1, "silent": {"n2": 10.0}}
    assert heartbeats.heartbeat_summary(path, 150.0) == {"relay": 50.0}


def test_heartbeats_that_can_not_be_written_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(heartbeats, "log", said.append)
    heartbeats.write_heartbeats(str(tmp_path / "nowhere" / "beats"), {"n1": 100.0})
    assert len(said) == 1
