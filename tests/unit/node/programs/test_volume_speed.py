"""The benchmark of volumes measures and leaves no files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from headway.transport.remote_program import program_source


def test_volume_benchmark_measures_and_leaves_no_files(tmp_path: Path) -> None:
    ask = json.dumps({"paths": [str(tmp_path), str(tmp_path / "none")], "mib": 8})
    ran = subprocess.run(
        [sys.executable, "-c", program_source("volume_speed"), ask], capture_output=True, text=True, check=True
    )
    first, second = (json.loads(line) for line in ran.stdout.splitlines())
    assert min(first["write"], first["read"], first["checkpoint"]) > 0
    assert second["error"] == "No such file or directory"
    assert list(tmp_path.iterdir()) == []


def test_volume_benchmark_removes_leftovers_of_a_killed_one(tmp_path: Path) -> None:
    for name, age_s in (("old", 7200), ("new", 0)):
        folder = tmp_path / f".headway-bench-{name}"
        folder.mkdir()
        (folder / "one").write_bytes(b"x")
        os.utime(folder, (time.time() - age_s,) * 2)
    (tmp_path / ".headway-bench-link").symlink_to(tmp_path / ".headway-bench-new")
    ask = json.dumps({"paths": [str(tmp_path)], "mib": 1})
    subprocess.run([sys.executable, "-c", program_source("volume_speed"), ask], capture_output=True, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".headway-bench-link", ".headway-bench-new"]
