"""A podman whose answers a test writes."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def podman_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A podman of ours comes first on PATH; write its script there."""
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program
