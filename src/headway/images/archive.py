"""Node images as compressed archives, for hosts that run them in containers. One archive per image is kept in the state
folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from headway.images.podman import QUERY_TIMEOUT_S, Podman, async_file_lock, labels
from headway.transport.process import run_process

_PACK_S = 1200.0
_CHUNK = 1 << 20


async def ensure_archive(image: str, state_dir: Path) -> Path:
    """Returns the archive (tar with gzip) of the image with this id. Archives of images that are no longer on this host
    are deleted. Raises CommandFailed."""
    folder, podman = state_dir / "image-archives", Podman(state_dir)
    async with async_file_lock(folder / ".lock"):
        path = folder / f"{image.removeprefix('sha256:')}.tar.gz"
        if not path.exists():
            await _remove_outdated(folder, podman)
            await _pack(image, path, podman)
        return path


async def read_archive(path: Path) -> AsyncIterator[bytes]:
    """Yields the archive in pieces of 1 MiB."""
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, _CHUNK):
            yield piece


async def _pack(image: str, path: Path, podman: Podman) -> None:
    """Packs the root folder of a container that never runs. An unfinished archive never gets the final name."""
    draft = path.with_suffix(".draft")
    container = f"headway-archive-{os.getpid()}-{path.name[:12]}"
    options = ["--name", container, *labels([("headway", "1")]), "--network", "none"]
    await podman("create", "--replace", *options, image, "true")
    try:
        root = (await podman("mount", container)).stdout.strip()
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
        await run_process([*argv, "--directory", root, "."], timeout_s=_PACK_S)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
        await podman("umount", container, check=False)
        await podman("rm", "--force", "--time", "0", container, check=False)


async def _remove_outdated(folder: Path, podman: Podman) -> None:
    listed = await podman("images", "--all", "--quiet", "--no-trunc", timeout_s=QUERY_TIMEOUT_S)
    there = {line.strip().removeprefix("sha256:") for line in listed.stdout.splitlines()}
    for path in folder.glob("*.tar.gz"):
        if path.name.removesuffix(".tar.gz") not in there:
            path.unlink()
