"""A disk that jobs have filled is not reported as a fault of the machine."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.checks import disk_owners

MIB = 1 << 20


@dataclass
class Node:
    """Its folders; the whole of it is one file system, as far as anybody asks."""

    top: Path

    def write(self, path: str, mib: float) -> Path:
        file = self.top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(1) * int(mib * MIB))
        return file

    def holders(self, lacks_mib: float, lacks_files: int = 0) -> list[int]:
        folders = {name: str(self.top / name) for name in ("jobs", "containers", "proc")}
        found: list[int] = disk_owners.jobs_filling_disk(
            str(self.top), int(lacks_mib * MIB), lacks_files, others=[str(self.top / "tmp")], **folders
        )
        return found


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(disk_owners, "_size", lambda path: int(path.startswith(str(tmp_path))))
    for name in ("jobs", "containers", "proc", "tmp"):
        (tmp_path / name).mkdir()
    return Node(tmp_path)


def test_jobs_filling_the_disk_are_listed_largest_first(node: Node) -> None:
    assert node.holders(1) == []
    node.write("jobs/12/tmp/deep/down/a", 2)
    node.write("containers/13/upper/b", 4)
    node.write("jobs/14/tmp/c", 0.1)
    assert node.holders(5) == [13, 12], "and not one that has next to nothing"
    assert node.holders(100) == [], "without them there would be no room either"


@pytest.mark.parametrize("name", ["gone-12.345", "12.former"])
def test_folder_that_the_epilog_removes_counts_for_its_job(node: Node, name: str) -> None:
    node.write(f"jobs/{name}/tmp/a", 2)
    assert node.holders(1) == [12]


def test_files_in_tmp_count_for_the_job_of_their_owner(node: Node) -> None:
    node.write("tmp/a", 2)
    assert node.holders(1) == []
    (node.top / "jobs/12").mkdir()
    (node.top / "jobs/12/uid").write_text(f"{os.getuid()}\n")
    assert node.holders(1) == [12]


def test_deleted_open_file_counts_for_the_job_of_its_process(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    file = node.write("jobs/12/tmp/a", 2)
    with file.open() as opened:
        file.unlink()
        (node.top / "proc/7/fd").mkdir(parents=True)
        (node.top / "proc/7/fd/3").symlink_to(f"/proc/{os.getpid()}/fd/{opened.fileno()}")
        assert node.holders(1) == []
        monkeypatch.setattr(disk_owners, "job_of", lambda pid, uid, proc: 12 if pid == 7 else None)
        assert node.holders(1) == [12]


def test_job_with_uncountable_files_or_deep_folders_is_still_listed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write("jobs/12/tmp/a", 0.1)
    node.write("jobs/12/tmp/b", 0.1)
    assert node.holders(1) == []
    with monkeypatch.context() as patch:
        clock = itertools.count()
        patch.setattr(disk_owners.time, "monotonic", lambda: float(next(clock)))
        patch.setattr(disk_owners, "_AT_A_TIME", 1)
        assert node.holders(1) == [12]
    here = os.open(node.top / "jobs/12/tmp", os.O_RDONLY)
    name = "x" * 200
    for _ in range(25):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert node.holders(1) == [12]


def test_exhausted_inodes_list_the_job_with_the_most_files_first(node: Node) -> None:
    for number in range(20):
        node.write(f"jobs/12/tmp/{number}", 0)
    node.write("jobs/13/tmp/a", 3)
    assert node.holders(-100, 15) == [12, 13]
    assert node.holders(-100, 500) == []


def test_file_deleted_during_the_count_does_not_stop_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        node.write(f"jobs/12/tmp/{name}", 1)
    real = os.scandir

    class Listed:
        """One of its entries is gone by the time that it is asked about."""

        def __init__(self, path: str) -> None:
            self.entries = real(path)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self.entries.close()

        def __iter__(self) -> Any:
            for entry in sorted(self.entries, key=lambda one: one.name):
                if entry.name == "a":
                    Path(entry.path).unlink()
                yield entry

    monkeypatch.setattr(disk_owners.os, "scandir", Listed)
    assert node.holders(2) == [12]


def test_same_file_system_is_recognised_though_its_size_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of XFS the number of files that fit moves with every block, of ZFS the size too."""
    moves = itertools.count(1)

    class Told:
        f_frsize = 4096

        def __init__(self) -> None:
            self.f_blocks = self.f_files = next(moves)

    node = Node(tmp_path)
    node.write("jobs/12/tmp/a", 2)
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(disk_owners.os, "statvfs", lambda _: Told())
    assert node.holders(1) == [12]
