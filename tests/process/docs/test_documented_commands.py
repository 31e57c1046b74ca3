"""Shell blocks of the documentation that need a server and no cluster do what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documented_blocks import blocks, run_blocks
from tests.support.paths import ROOT

PAGES = {
    "installation.md": "/signin?code=",
    "howto/access.md": "has the hash that audit.jsonl has",
    "howto/rest-api.md": '"role":"admin"',
}


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yields the environment of a new user with an own server, which is stopped at the end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADWAY_", "XDG_"))}
    made = {**kept, "HEADWAY_STATE": str(tmp_path / "state"), "HEADWAY_PORT": "0", "HOME": str(tmp_path)}
    argv = [sys.executable, "-m", "headway", "server"]
    subprocess.run([*argv, "start"], env=made, check=True, timeout=300, capture_output=True)
    yield made
    subprocess.run([*argv, "stop"], env=made, check=False, timeout=300, capture_output=True)


@pytest.mark.parametrize("name", PAGES)
def test_blocks_that_need_only_a_server_run(name: str, env: dict[str, str], tmp_path: Path) -> None:
    assert PAGES[name] in run_blocks(ROOT / "docs" / name, "server", tmp_path, env)


def test_all_pages_with_such_blocks_are_run() -> None:
    found = {
        str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md") for b in blocks(p) if b.how == "server"
    }
    assert found == set(PAGES)
