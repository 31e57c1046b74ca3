"""Archives of node images are packed once, and waiting for that holds no thread."""

from __future__ import annotations

import asyncio
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headway.errors import CommandFailed
from headway.images.archive import ensure_archive
from headway.images.podman import HINT, async_file_lock, file_lock

IMAGE = "sha256:" + "a" * 64
PODMAN = """#!/bin/sh
echo "$*" >>{folder}/calls
case $1 in
images) echo {image} ;;
mount) echo {folder}/root ;;
esac
"""


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a podman of ours on PATH. Its images have one file; it writes its calls to a file."""
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(PODMAN.format(folder=tmp_path, image=IMAGE))
    program.chmod(0o755)
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "hostname").write_text("lab-1-1\n")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


async def test_image_is_packed_once_for_all_hosts(podman: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "image-archives"
    folder.mkdir(parents=True)
    outdated = folder / f"{'b' * 64}.tar.gz"
    outdated.touch()
    paths = await asyncio.gather(*(ensure_archive(IMAGE, tmp_path / "state") for _ in range(4)))
    assert set(paths) == {folder / f"{'a' * 64}.tar.gz"}
    with tarfile.open(paths[0]) as packed:
        assert "./etc/hostname" in packed.getnames()
    assert not outdated.exists()
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["images", "create", "mount", "umount", "rm"]
    assert "--label headway=1" in calls[1]


async def test_hosts_that_wait_for_the_archive_hold_no_thread(podman: Path, tmp_path: Path) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    async with asyncio.timeout(60):
        with file_lock(tmp_path / "image-archives" / ".lock"):  # of another server on the folder
            waiting = [asyncio.create_task(ensure_archive(IMAGE, tmp_path)) for _ in range(4)]
            await asyncio.sleep(0)
            assert await asyncio.to_thread(lambda: "free") == "free"
        assert len(set(await asyncio.gather(*waiting))) == 1


async def test_cancelled_wait_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"

    async def take() -> None:
        async with async_file_lock(path):
            pass

    with file_lock(path):
        task = asyncio.create_task(take())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(60):
        await take()


async def test_failed_packing_says_what_to_do_and_leaves_no_archive(podman: Path, tmp_path: Path) -> None:
    podman.write_text("#!/bin/sh\n[ $1 != create ] || { echo 'database is locked' >&2; exit 125; }\n")
    with pytest.raises(CommandFailed, match="database is locked") as failed:
        await ensure_archive(IMAGE, tmp_path)
    assert failed.value.hint == HINT
    assert list((tmp_path / "image-archives").glob("*.gz")) == []
