"""Operations on shared storage happen completely, and once."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from batch_worker.leases import Leases
from batch_worker.shared_files import SharedFiles


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SharedFiles]:
    made = SharedFiles(str(tmp_path / "tmp"))
    yield made
    made.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_file_is_created_once(files: SharedFiles, tmp_path: Path) -> None:
    assert files.create(str(tmp_path / "a"), b"first")
    assert not files.create(str(tmp_path / "a"), b"second")
    assert files.read(str(tmp_path / "a")) == b"first"


def test_folder_takes_a_name_that_no_other_has(files: SharedFiles, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    assert files.rename_folder(str(tmp_path / "one"), str(tmp_path / "output"))
    assert not files.rename_folder(str(tmp_path / "two"), str(tmp_path / "output"))
    assert (tmp_path / "output" / "file").read_text() == "one"


def test_lease_belongs_to_one_until_it_expires_or_is_given_back(files: SharedFiles, tmp_path: Path) -> None:
    first, second = (Leases(files, str(tmp_path / "leases"), owner, 3600) for owner in ("7_0", "7_1"))
    (tmp_path / "leases").mkdir()
    assert first.claim("5", 0) == 1
    assert second.claim("5", 0) == 0
    assert second.claim("5", second.attempts()["5"]) == 0
    first.give_back("5", 1)
    assert second.was_given_back("5", 1)
    assert second.claim("5", 1) == 2
    again = Leases(files, str(tmp_path / "leases"), "7_1", 3600)  # the next run of the same task
    assert second.claim("5", 2) == 0
    assert again.claim("5", 2) == 3


def test_renewed_lease_has_not_expired(files: SharedFiles, tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    first, second = (Leases(files, str(tmp_path / "leases"), owner, 3600) for owner in ("7_0", "7_1"))
    assert first.claim("5", 0) == 1
    os.utime(tmp_path / "leases" / "5.1", (1e9, 1e9))
    first.renew("5", 1)
    assert second.claim("5", 1) == 0


def test_file_for_which_the_disk_has_no_space_leaves_nothing(files: SharedFiles, tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        yield b"one"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        files.replace(str(tmp_path / "a"), lines())
    assert not (tmp_path / "a").exists()


def test_renaming_that_a_client_repeats_has_succeeded(
    files: SharedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "file").touch()
    rename = os.rename

    def twice(source: str, to: str) -> None:
        rename(source, to)
        rename(source, to)

    monkeypatch.setattr("os.rename", twice)
    assert files.rename_folder(str(tmp_path / "draft"), str(tmp_path / "output"))


def test_what_dead_workers_left_is_removed(files: SharedFiles, tmp_path: Path) -> None:
    for name in ("old-file", "old-draft/part", "draft/part"):
        path = tmp_path / "tmp" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        if name.startswith("old"):
            os.utime(tmp_path / "tmp" / name.split("/")[0], (1e9, 1e9))
    files.remove_leftovers(3600)
    assert {path.name for path in (tmp_path / "tmp").iterdir() if not path.name.startswith("clock.")} == {"draft"}
    os.utime(tmp_path / "tmp" / "draft", (1e9, 1e9))
    files.remove_leftovers(3600)
