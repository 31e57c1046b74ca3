"""Faults are made without trusting what users put into folders that are open to all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from programs import inject_fault


def test_file_that_fills_tmp_is_neither_a_link_nor_a_file_of_a_user(tmp_path: Path) -> None:
    target, link, hard, pipe = (tmp_path / name for name in ("target", "link", "hard", "pipe"))
    target.write_text("of root")
    link.symlink_to(target)
    os.link(target, hard)
    os.mkfifo(pipe)
    for path in (link, hard, pipe):
        with pytest.raises((SystemExit, OSError)), open(path, "ab", buffering=0, opener=inject_fault.own_file):
            pass
    assert target.read_text() == "of root"
    hard.unlink()
    with open(tmp_path / "own", "ab", buffering=0, opener=inject_fault.own_file) as file:
        file.write(b"x")


def test_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "theirs"
    path.write_text("")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SystemExit), open(path, "ab", opener=inject_fault.own_file):
        pass
