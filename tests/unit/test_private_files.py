"""Private files appear whole, with mode 600, and leave no other file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.private_files import create_private, write_private


@pytest.mark.parametrize("write", [write_private, create_private])
def test_file_is_private_also_with_an_open_umask(tmp_path: Path, write: object) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / "key", "secret\n")  # type: ignore[operator]
    finally:
        os.umask(before)
    assert (tmp_path / "key").read_text() == "secret\n"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["key"]


def test_write_replaces_and_create_does_not(tmp_path: Path) -> None:
    file = tmp_path / "key"
    write_private(file, "one")
    write_private(file, b"two")
    create_private(file, "three")
    assert file.read_text() == "two"
    assert [one.name for one in tmp_path.iterdir()] == ["key"]


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        write_private(tmp_path / "key", "x")
    assert [one.name for one in tmp_path.iterdir()] == ["key"]
