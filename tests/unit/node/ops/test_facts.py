"""Facts of a machine."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from ops import facts, files


@pytest.mark.parametrize("absent", ["/nonexistent/file", "/proc/nope"])
def test_observe_omits_missing_files(absent: str) -> None:
    assert facts.observe({"files": [absent], "dirs": [absent]})["files"] == {}


def test_squatted_detects_a_folder_of_another_owner(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "new").mkdir()
    if os.getuid() == 0:
        os.chown(tmp_path / "new", 4711, 4711)
    stranger = str(os.getuid() + 1)
    assert files.is_taken_by_other(str(tmp_path / "new"), stranger)
    tmp_path.chmod(0o755)  # where only root makes folders, whose it is was root's doing
    assert not files.is_taken_by_other(str(tmp_path / "new"), stranger)


def test_file_without_headway_lines_has_no_block_fact(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("192.0.2.9 files\n")
    assert facts.see_file(str(tmp_path / "hosts"), block=True) is None


def test_sessions_are_read_by_name() -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    assert set(facts.see_sessions([name, "no-such-user-here"])) <= {name}
