"""Steps that may fail warn, and unmounting does not wait for a dead server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.transport.remote_program import program_source
from ops import steps


def test_failed_optional_step_warns_and_the_next_steps_run(tmp_path: Path) -> None:
    away = {"op": "run", "argv": ["sh", "-c", "echo no route to host >&2; exit 32"], "may_fail": True}
    there = {"op": "run", "argv": ["touch", str(tmp_path / "there")]}
    ask = json.dumps({"do": "apply", "steps": [away, there]})
    ran = subprocess.run(
        [sys.executable, "-c", program_source("ops")], input=ask, capture_output=True, text=True, check=True
    )
    first, second = (json.loads(line) for line in ran.stdout.splitlines())
    assert (first["ok"], second["ok"]) == (True, True)
    assert "no route to host" in first["warning"]
    assert (tmp_path / "there").exists()


def test_unmount_step_does_not_access_the_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(argv: list[str], *_: Any, **__: Any) -> str:
        ran.append(" ".join(argv))
        return "/models\n" if "show" in argv else ""

    def waits(name: str) -> Any:
        real = getattr(os, name)

        def ask(path: Any, *args: Any, **more: Any) -> Any:
            assert not str(path).startswith("/models"), "a request to a dead server waits"
            return real(path, *args, **more)

        return ask

    monkeypatch.setattr(steps, "run_command", run)
    monkeypatch.setattr(steps, "_MOUNTS", str(tmp_path / "mounts"), raising=False)
    for name in ("lstat", "stat", "statvfs"):
        monkeypatch.setattr(os, name, waits(name))
    for mounts in ("f:/models /models nfs4 rw 0 0\n", "f:/x /models/x nfs4 rw 0 0\n"):
        (tmp_path / "mounts").write_text(mounts)
        steps.op_unmount({"unit": "models.mount"})
    (unmount,) = (line for line in ran if line.startswith("umount"))
    assert unmount.endswith(" /models")
    assert {"--lazy", "--no-canonicalize"} <= set(unmount.split())
