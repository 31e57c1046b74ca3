"""slurmctld's power-saving program writes one line for the server, into which no user can insert anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.roles import power_requests as power


def test_each_power_hint_is_one_json_line(tmp_path: Path) -> None:
    power.write_power_request(str(tmp_path), "up", "lab-gpu-1-[1-3]")
    power.write_power_request(str(tmp_path), "down", "lab-gpu-1-1")
    rows = [json.loads(line) for line in (tmp_path / power.FILE).read_text().splitlines()]
    assert [(row["word"], row["nodes"]) for row in rows] == [("up", "lab-gpu-1-[1-3]"), ("down", "lab-gpu-1-1")]


@pytest.mark.parametrize(("word", "nodes"), [("off", "lab-1-1"), ("up", "a b"), ("up", 'x"\n'), ("up", "")])
def test_invalid_power_hint_is_refused(tmp_path: Path, word: str, nodes: str) -> None:
    with pytest.raises(SystemExit, match="an unknown request"):
        power.write_power_request(str(tmp_path), word, nodes)
    assert not (tmp_path / power.FILE).exists()
