"""Node images as compressed archives, for hosts that run them in containers. One archive per image is kept in the state
folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from headway.images.podman import file_lock
from headway.transport.process import run

_PACK_S = 1200.0
_CHUNK = 1 << 20


async def ensure_archive(image: str, state_dir: Path) -> Path:
    """Returns the archive (tar with gzip) of the image with this id. Archives of images that are no longer on this host
    are deleted. Raises CommandFailed."""
    folder = state_dir / "image-archives"
    lock = file_lock(folder / ".lock")
    await asyncio.to_thread(lock.__enter__)
    try:
        path = folder / f"{image.removeprefix('sha256:')}.tar.gz"
        if not path.exists():
            await _remove_outdated(folder)
            await _pack(image, path)
        return path
    finally:
        lock.__exit__(None, None, None)


async def read_archive(path: Path) -> AsyncIterator[bytes]:
    """Yields the archive in pieces of 1 MiB."""
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, _CHUNK):
            yield piece


async def _pack(image: str, path: Path) -> None:
    """Packs the root folder of a container that never runs. An unfinished archive never gets the final name."""
    draft = path.with_suffix(".draft")
    container = f"headway-archive-{os.getpid()}-{path.name[:12]}"
    await run(
        [
            "podman",
            "create",
            "--replace",
            "--name",
            container,
            "--label",
            "headway=1",
            "--network",
            "none",
            image,
            "true",
        ],
        timeout_s=60,
    )
    try:
        root = (await run(["podman", "mount", container], timeout_s=60)).stdout.strip()
        argv = [
            "tar",
            "--create",
            "--file",
            str(draft),
            "--use-compress-program",
            "gzip -1",
            "--numeric-owner",
            "--xattrs",
        ]
        await run([*argv, "--directory", root, "."], timeout_s=_PACK_S)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
        await run(["podman", "umount", container], timeout_s=60, check=False)
        await run(["podman", "rm", "--force", "--time", "0", container], timeout_s=60, check=False)


async def _remove_outdated(folder: Path) -> None:
    listed = await run(["podman", "images", "--all", "--quiet", "--no-trunc"], timeout_s=60)
    there = {line.strip().removeprefix("sha256:") for line in listed.stdout.splitlines()}
    for path in folder.glob("*.tar.gz"):
        if path.name.removesuffix(".tar.gz") not in there:
            path.unlink()
