"""The stream to the server sends faults and the ages of heartbeats."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.roles import server_stream
from tests.support.paths import NODE


def test_server_stream_sends_existing_and_new_faults(tmp_path: Path) -> None:
    spool = tmp_path / "f"
    spool.write_text('{"id": "a"}\n{"id": "b')
    code = f"from agent.roles.server_stream import stream_events; stream_events({str(spool)!r}, {str(tmp_path / 'none')!r})"
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, cwd=NODE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = (json.loads(row) for row in process.stdout)
            assert next(told) == {"fault": {"id": "a"}}
            assert next(told) == {"relay": -1}
            with spool.open("a") as file:
                file.write('"}\n')
            assert next(row for row in told if "fault" in row) == {"fault": {"id": "b"}}
        finally:
            process.kill()


def row(state: str, at: float = 5.0) -> dict[str, Any]:
    return {"check": "gpu_count", "at": at, "state": state, "reason": "r", "action": "reboot", "gpu": 3}


def test_server_stream_labels_checks_and_faults(tmp_path: Path, monkeypatch: Any) -> None:
    spool = tmp_path / "f"
    spool.write_text(json.dumps({"id": "1", "code": 79}) + "\n" + json.dumps({"id": "2", **row("bad")}) + "\n")
    printed: list[str] = []

    class EnoughError(Exception):
        pass

    def tell(line: str, **_: Any) -> None:
        printed.append(line)
        if len(printed) == 2:
            raise EnoughError

    monkeypatch.setattr(server_stream, "print", tell, raising=False)
    with pytest.raises(EnoughError):
        server_stream.stream_events(str(spool), str(tmp_path / "none"))
    assert [next(iter(json.loads(line))) for line in printed] == ["fault", "check"]
