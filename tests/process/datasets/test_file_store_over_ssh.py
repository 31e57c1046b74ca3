"""The file store program that the server sends to an owned head works when started here in the same way."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.cluster.context import ClusterContext
from headway.datasets.file_progress import FileProgress, Stopped
from headway.datasets.file_store_over_ssh import SshDatasetFileStore
from headway.datasets.folder_source import FolderSource
from headway.datasets.manifest import DatasetManifest
from headway.datasets.source import Item, Listing
from headway.domain.machines.machine import Machine
from headway.domain.storage.folders import StorageFolders
from headway.errors import Refused
from tests.support.clusters import builders
from tests.support.waiting import eventually


class Head:
    """A provider with one head, and its connection: programs run here."""

    def __init__(self) -> None:
        self.sent = 0  # bytes that went over

    async def list(self, _: str) -> tuple[Machine, ...]:
        return (builders.machine("lab-head"),)

    async def converse(
        self, _: Machine, argv: Sequence[str], feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, *argv[1:], stdin=pipe, stdout=pipe, stderr=pipe)
        assert process.stdin
        assert process.stdout
        assert process.stderr

        async def give() -> None:
            async for piece in feed:
                self.sent += len(piece)
                process.stdin.write(piece)  # type: ignore[union-attr]
                await process.stdin.drain()  # type: ignore[union-attr]
            process.stdin.close()  # type: ignore[union-attr]

        giving = asyncio.create_task(give())
        try:
            while data := await process.stdout.read(7):  # lines come in pieces
                yield "out", data
            yield "err", await process.stderr.read()
            yield "code", b"%d" % await process.wait()
        finally:
            giving.cancel()
            await asyncio.gather(giving, return_exceptions=True)
            if process.returncode is None:
                process.terminate()
                await process.wait()


@pytest.fixture
def head() -> Head:
    return Head()


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def file_store(head: Head, scratch: Path) -> SshDatasetFileStore:
    cluster = replace(builders.cluster(provider=SSH), storage=StorageFolders(scratch=str(scratch)))
    both: Any = head
    return SshDatasetFileStore(cluster, ClusterContext(both, both, both, Path()))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.txt").write_text("alpha" * 1000)
    (folder / "b.sh").write_text("beta")
    (folder / "b.sh").chmod(0o755)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("b.sh")
    return folder


async def add(file_store: SshDatasetFileStore, source: Path, number: int = 1) -> tuple[DatasetManifest, FileProgress]:
    progress = FileProgress()
    manifest = await file_store.import_files("words", FolderSource(source), progress, number - 1)
    await file_store.publish("words", number, manifest)
    await file_store.end_import("words")
    return manifest, progress


def place(scratch: Path, number: int = 1) -> Path:
    return scratch / ".headway/lab/datasets/versions/words" / str(number)


async def test_publishes_version_to_shared_storage(
    file_store: SshDatasetFileStore, scratch: Path, source: Path
) -> None:
    manifest, progress = await add(file_store, source)
    there = place(scratch)
    assert (there / "deep" / "a.txt").read_text() == "alpha" * 1000
    assert (there / "b.sh").stat().st_mode & 0o777 == 0o555
    assert (there / "link").readlink() == Path("b.sh")
    assert (there / "empty").is_dir()
    assert (progress.files, progress.of_files, progress.bytes) == (2, 2, 5004)
    assert manifest.digest == DatasetManifest.read(manifest.text).digest
    assert await file_store.verify("words", 1, manifest.digest, FileProgress()) == []


async def test_versions_share_unchanged_files(file_store: SshDatasetFileStore, scratch: Path, source: Path) -> None:
    await add(file_store, source)
    (source / "b.sh").write_text("gamma")
    await add(file_store, source, 2)
    one, two = (place(scratch, number) / "deep" / "a.txt" for number in (1, 2))
    assert one.samefile(two)
    assert [(place(scratch, number) / "b.sh").read_text() for number in (1, 2)] == ["beta", "gamma"]
    assert await file_store.remove("words", 1) == 4
    assert two.read_text() == "alpha" * 1000


async def test_publish_keeps_existing_version_with_same_number(
    file_store: SshDatasetFileStore, scratch: Path, source: Path
) -> None:
    manifest, _ = await add(file_store, source)
    (source / "b.sh").write_text("gamma")
    other = await file_store.import_files("words", FolderSource(source), FileProgress(), 0)
    assert [await file_store.publish("words", 1, one) for one in (other, manifest)] == [False, True]
    assert (place(scratch) / "b.sh").read_text() == "beta"


async def test_manifest_is_parsed_outside_event_loop_thread(
    file_store: SshDatasetFileStore, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, where = DatasetManifest.read, set()

    def read(text: bytes) -> DatasetManifest:
        where.add(threading.current_thread() is threading.main_thread())
        return real(text)

    monkeypatch.setattr(DatasetManifest, "read", read)
    await add(file_store, source)
    assert where == {False}


async def test_verify_names_damaged_file(file_store: SshDatasetFileStore, scratch: Path, source: Path) -> None:
    manifest, _ = await add(file_store, source)
    broken = place(scratch) / "b.sh"
    broken.chmod(0o755)
    broken.write_text("BETA")
    (wrong,) = await file_store.verify("words", 1, manifest.digest, FileProgress())
    assert wrong == "b.sh has different content"


class Watched(FolderSource):
    """Says what is read, and breaks off in one file."""

    def __init__(self, path: Path, broken: str = "") -> None:
        super().__init__(path)
        self.seen: list[str] = []
        self._broken = broken

    def read(self, item: Item) -> Iterator[bytes]:
        self.seen.append(item.path)
        if item.path == self._broken:
            raise Refused(f"{item.path} changed while it was read")
        yield from super().read(item)


async def test_interrupted_import_resumes_without_sending_files_again(
    file_store: SshDatasetFileStore, source: Path, scratch: Path
) -> None:
    first = Watched(source, "deep/a.txt")
    with pytest.raises(Refused, match=r"deep/a\.txt changed while it was read"):
        await file_store.import_files("words", first, FileProgress(), 0)
    assert sorted(first.seen) == ["b.sh", "deep/a.txt"]
    assert not place(scratch).exists()
    again = Watched(source)
    await file_store.import_files("words", again, FileProgress(), 0)
    assert again.seen == ["deep/a.txt"]


class Endless(FolderSource):
    def listing(self) -> Listing:
        return Listing((Item("big", 1 << 50, False, "1"),))

    def read(self, _: Item) -> Iterator[bytes]:
        while True:
            yield bytes(1 << 16)


async def test_import_stops_on_request(file_store: SshDatasetFileStore, source: Path) -> None:
    progress = FileProgress()
    task = asyncio.create_task(file_store.import_files("words", Endless(source), progress, 0))
    await eventually(lambda: progress.bytes >= 1 << 20)
    progress.stop.set()
    with pytest.raises(Stopped):
        await task


async def test_refuses_folder_not_owned_by_root(
    file_store: SshDatasetFileStore, scratch: Path, source: Path, tmp_path: Path
) -> None:
    shutil.rmtree(scratch / ".headway", ignore_errors=True)
    (tmp_path / "theirs").mkdir()
    (scratch / ".headway").symlink_to(tmp_path / "theirs")
    with pytest.raises(Refused, match=r"lab-head: .*/\.headway does not belong to root"):
        await add(file_store, source)
    assert list((tmp_path / "theirs").iterdir()) == []
