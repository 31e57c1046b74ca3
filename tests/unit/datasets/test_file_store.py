"""Dataset versions store each content once, are complete or absent, and continue after a kill."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.datasets.file_progress import FileProgress, Stopped
from headway.datasets.file_store import DatasetFileStore
from headway.datasets.folder_source import FolderSource
from headway.datasets.manifest import DatasetFile, DatasetManifest
from headway.datasets.source import Item, Listing
from headway.errors import Refused


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "from"
    (folder / "train" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "train" / "a.bin").write_bytes(b"alpha" * 1000)
    (folder / "train" / "deep" / "b.bin").write_bytes(b"beta" * 1000)
    (folder / "train" / "same.bin").write_bytes(b"alpha" * 1000)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("train/a.bin")
    return folder


@pytest.fixture
def file_store(tmp_path: Path) -> DatasetFileStore:
    return DatasetFileStore(tmp_path / "store")


class Counting(FolderSource):
    """Says which files were read, and can end like a killed server."""

    def __init__(self, path: Path, *, dies_at: str = "") -> None:
        super().__init__(path)
        self.seen: list[str] = []
        self._dies_at = dies_at

    def read(self, item: Item) -> Iterator[bytes]:
        self.seen.append(item.path)
        if item.path == self._dies_at:
            yield b"half"
            raise KeyboardInterrupt
        yield from super().read(item)


def add(file_store: DatasetFileStore, source: Path, number: int, name: str = "tiny") -> DatasetManifest:
    manifest = file_store.import_files(name, FolderSource(source), FileProgress(), number - 1)
    file_store.publish(name, number, manifest)
    file_store.end_import(name)
    return manifest


def objects(file_store: DatasetFileStore) -> list[Path]:
    return [one for one in file_store._folders.objects.glob("*/*") if one.is_file()]


def test_version_matches_source_and_stores_each_content_once(file_store: DatasetFileStore, source: Path) -> None:
    manifest = add(file_store, source, 1)
    tree = file_store.folder("tiny") / "1"
    assert (tree / "train/deep/b.bin").read_bytes() == b"beta" * 1000
    assert (tree / "latest").readlink() == Path("train/a.bin")
    assert (tree / "empty").is_dir()
    assert (tree / "train/a.bin").samefile(tree / "train/same.bin")
    assert (tree / "run.sh").stat().st_mode & 0o777 == 0o555
    assert (tree / "train/a.bin").stat().st_mode & 0o777 == 0o444
    assert len(objects(file_store)) == 3
    assert (len(manifest.files), manifest.size) == (4, 14_010)
    assert file_store.verify("tiny", 1, manifest.digest, FileProgress()) == []


def test_same_content_keeps_digest_and_versions_share_files(file_store: DatasetFileStore, source: Path) -> None:
    first = add(file_store, source, 1)
    (source / "train/a.bin").touch()
    assert file_store.import_files("tiny", FolderSource(source), FileProgress(), 1).digest == first.digest
    (source / "more.txt").write_text("more")
    second = add(file_store, source, 2)
    assert second.digest != first.digest
    assert len(objects(file_store)) == 4
    one, two = (file_store.folder("tiny") / n / "train/a.bin" for n in "12")
    assert one.samefile(two)


def test_killed_import_leaves_no_version_and_next_resumes(file_store: DatasetFileStore, source: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        file_store.import_files("tiny", Counting(source, dies_at="train/deep/b.bin"), FileProgress())
    assert not file_store.folder("tiny").exists()
    again = Counting(source)
    manifest = file_store.import_files("tiny", again, FileProgress())
    assert again.seen == ["train/deep/b.bin", "train/same.bin"]
    file_store.publish("tiny", 1, manifest)
    assert file_store.verify("tiny", 1, manifest.digest, FileProgress()) == []


def test_resumed_import_reads_changed_files_again(file_store: DatasetFileStore, source: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        file_store.import_files("tiny", Counting(source, dies_at="train/same.bin"), FileProgress())
    (source / "run.sh").write_text("#!/bin/sh\ntrue\n")
    again = Counting(source)
    file_store.import_files("tiny", again, FileProgress())
    assert again.seen == ["run.sh", "train/same.bin"]


def test_import_after_reboot_reads_all_files_again(file_store: DatasetFileStore, source: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        file_store.import_files("tiny", Counting(source, dies_at="train/same.bin"), FileProgress())
    journal = file_store._folders.drafts / "tiny.journal"
    journal.write_text('["another boot"]\n' + "".join(journal.read_text().splitlines(keepends=True)[1:]) + '["cut o')
    again = Counting(source)
    file_store.import_files("tiny", again, FileProgress())
    assert len(again.seen) == 4


def test_publish_never_replaces_different_complete_version(file_store: DatasetFileStore, source: Path) -> None:
    """It may be of a server whose records of it are lost. One of which nothing says what it holds is made anew."""
    first = add(file_store, source, 1)
    (source / "run.sh").unlink()
    other = file_store.import_files("tiny", FolderSource(source), FileProgress())
    assert not file_store.publish("tiny", 1, other)
    assert file_store.verify("tiny", 1, first.digest, FileProgress()) == []
    assert file_store.publish("tiny", 1, first)
    file_store._folders.manifest("tiny", 1).write_text("no line of JSON")
    assert file_store.publish("tiny", 1, other)
    assert not (file_store.folder("tiny") / "1" / "run.sh").exists()
    assert file_store.verify("tiny", 1, other.digest, FileProgress()) == []


def test_import_can_be_stopped(file_store: DatasetFileStore, source: Path) -> None:
    progress = FileProgress()
    progress.stop.set()
    with pytest.raises(Stopped):
        file_store.import_files("tiny", FolderSource(source), progress)
    assert not file_store.folder("tiny").exists()


def test_verify_names_damage_and_next_import_repairs_it(file_store: DatasetFileStore, source: Path) -> None:
    manifest = add(file_store, source, 1)
    tree = file_store.folder("tiny") / "1"
    damaged = tree / "train/deep/b.bin"
    damaged.chmod(0o644)
    damaged.write_bytes(b"BETA" * 1000)
    (tree / "latest").unlink()
    (tree / "run.sh").unlink()
    (tree / "new").write_text("x")
    assert file_store.verify("tiny", 1, manifest.digest, FileProgress()) == [
        "run.sh is missing", "train/deep/b.bin has different content", "latest is missing", "new does not belong to it",
    ]  # fmt: skip
    assert file_store.verify("tiny", 1, "0" * 64, FileProgress()) == ["its manifest differs from the recorded one"]
    again = add(file_store, source, 2)
    assert file_store.verify("tiny", 2, again.digest, FileProgress()) == []


def test_removal_keeps_files_shared_with_other_versions(file_store: DatasetFileStore, source: Path) -> None:
    add(file_store, source, 1)
    (source / "train/a.bin").write_text("small")
    (source / "train/same.bin").unlink()
    second = add(file_store, source, 2)
    assert file_store.remove("tiny", 1) == 5000
    assert file_store.remove("tiny", 1) == 0
    assert not (file_store.folder("tiny") / "1").exists()
    assert file_store.verify("tiny", 2, second.digest, FileProgress()) == []
    file_store.remove("tiny", 2)
    assert objects(file_store) == []


@pytest.mark.parametrize("left", ["gone", "tree"])
def test_removal_frees_leftovers_of_killed_operations(file_store: DatasetFileStore, source: Path, left: str) -> None:
    add(file_store, source, 1)
    (file_store.folder("tiny") / "1").rename(
        file_store._folders.drafts / left
    )  # killed right here, of a removal or before its end
    assert file_store.remove("tiny", 1) > 5000
    assert objects(file_store) == []
    assert not (file_store._folders.drafts / left).exists()


def test_removal_keeps_files_of_unfinished_import(file_store: DatasetFileStore, source: Path, tmp_path: Path) -> None:
    add(file_store, source, 1)
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("kept for later")
    (other / "b").write_text("b")
    with pytest.raises(KeyboardInterrupt):
        file_store.import_files("wide", Counting(other, dies_at="b"), FileProgress())
    file_store.remove("tiny", 1)
    again = Counting(other)
    file_store.import_files("wide", again, FileProgress())
    assert again.seen == ["b"]


def test_import_refuses_outside_links_special_files_and_empty_source(
    file_store: DatasetFileStore, source: Path
) -> None:
    (source / "out").symlink_to("../secret")
    (source / "root").symlink_to("/etc/shadow")
    os.mkfifo(source / "train" / "pipe")
    with pytest.raises(Refused) as error:
        file_store.import_files("tiny", FolderSource(source), FileProgress())
    for words in ("out links to ../secret, outside", "root links to /etc/shadow, outside", "train/pipe is not a file"):
        assert words in error.value.message
    with pytest.raises(Refused, match="No such file"):
        FolderSource(source / "none")
    with pytest.raises(Refused, match="has no file"):
        file_store.import_files("tiny", FolderSource(source / "empty"), FileProgress())


def test_import_refuses_source_with_unreadable_folder(
    file_store: DatasetFileStore, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def closed(path: str, *args: int, **more: int) -> int:
        if path == "deep":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", closed)  # root may open any folder
    with pytest.raises(Refused, match=r"from can't be read completely: train/deep: Permission denied") as refused:
        file_store.import_files("tiny", FolderSource(source), FileProgress())
    assert "read every folder" in refused.value.hint


def test_listing_refuses_folder_that_vanishes(source: Path) -> None:
    class Vanishing(FolderSource):
        @staticmethod
        def _add_entry(path: str, name: str, handle: int, files: list[Item], links: list[tuple[str, str]]) -> str:
            if name == "run.sh":  # of the topmost folder: what is below is opened after this
                (source / "train").rename(source.parent / "old")
            return FolderSource._add_entry(path, name, handle, files, links)

    with pytest.raises(Refused, match="can't be read completely: train: No such file"):
        Vanishing(source).listing()


def test_import_refuses_file_that_vanishes_during_listing(file_store: DatasetFileStore, source: Path) -> None:
    class Vanishing(FolderSource):
        @staticmethod
        def _add_entry(path: str, name: str, handle: int, files: list[Item], links: list[tuple[str, str]]) -> str:
            if path == "train/a.bin":
                os.unlink(name, dir_fd=handle)
            return FolderSource._add_entry(path, name, handle, files, links)

    with pytest.raises(Refused, match=r"from/train/a\.bin: No such file") as refused:
        file_store.import_files("tiny", Vanishing(source), FileProgress())
    assert "no program writes there" in refused.value.hint


def test_import_reports_io_error_during_listing(file_store: DatasetFileStore) -> None:
    class Broken:
        def listing(self) -> Listing:
            raise OSError(errno.EIO, "Input/output error", "/data")

        def read(self, item: Item) -> Iterator[bytes]:
            raise AssertionError

        def close(self) -> None: ...

    with pytest.raises(Refused, match="/data: Input/output error"):
        file_store.import_files("tiny", Broken(), FileProgress())


def test_reader_does_not_follow_swapped_in_symlink(file_store: DatasetFileStore, source: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "b.bin").write_bytes(b"beta" * 1000)
    reader = FolderSource(source)
    (item,) = [file for file in reader.listing().files if file.path == "train/deep/b.bin"]
    (source / "train/deep/b.bin").unlink()
    (source / "train/deep").rmdir()
    (source / "train/deep").symlink_to(tmp_path / "secret")
    with pytest.raises((Refused, OSError)):
        list(reader.read(item))


def test_refuses_file_changed_after_listing(file_store: DatasetFileStore, source: Path) -> None:
    reader = FolderSource(source)
    listed = reader.listing()
    (source / "run.sh").write_text("another")
    item = next(file for file in listed.files if file.path == "run.sh")
    with pytest.raises(Refused, match="was changed while it was read"):
        list(reader.read(item))


def test_manifest_round_trips_through_text() -> None:
    listing = Listing((Item("ä b\n", 3, True, ""),), (("l", "ä b\n"),), ("e",))
    from headway.datasets.manifest import DatasetFile

    made = DatasetManifest.of([DatasetFile("ä b\n", "0" * 64, 3, True)], listing)
    assert DatasetManifest.read(made.text) == made


@pytest.mark.parametrize("path", ["/x", "a/../../x", "..", ""])
def test_path_that_leads_out_of_the_version_is_refused(path: str) -> None:
    file = DatasetFile(path, "0" * 64, 1)
    for files, links, folders in [([file], (), ()), ([], ((path, "a"),), ()), ([], (), (path,))]:
        with pytest.raises(Refused, match="not a path within a dataset version"):
            DatasetManifest.of(files, Listing((), links, folders))
