"""The file of secrets on a head: for root only, and never older than before."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from programs.install_job_secrets import install


def content(revision: int) -> str:
    return json.dumps({"revision": revision, "users": {}, "teams": {}, "members": {}})


def test_newer_revision_replaces_an_older_one_but_not_the_reverse(tmp_path: Path) -> None:
    file = tmp_path / "new" / "secrets.json"
    for revision in (2, 3, 1, 3):
        install(str(file), content(revision))
    assert json.loads(file.read_text())["revision"] == 3
    assert {stat.S_IMODE(one.stat().st_mode) for one in file.parent.iterdir()} == {0o600}


def test_damaged_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text("{")
    install(str(file), content(1))
    assert json.loads(file.read_text())["revision"] == 1
