"""Lists, finds and removes the node images that podman stores on this host."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from headway.errors import Refused
from headway.images.podman import async_file_lock, host_lock_folder
from headway.images.recipe import (
    BASE_REPOSITORY,
    RECIPES,
    REPOSITORY,
    base_hash,
    current_tag,
    get_recipe,
    inputs_hash,
)
from headway.transport.process import run_process


@dataclass(frozen=True, slots=True)
class DebianRelease:
    """The state of a Debian suite that an image is made from: SHA-256 of its InRelease file, and the file's date."""

    suite: str  # codename: trixie, trixie-security
    sha256: str
    date: str  # ISO 8601, UTC


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """A node image on this host. `current` is False if its inputs have changed since it was built, or if a newer image has
    the same inputs and newer packages."""

    name: str
    tag: str
    id: str
    hash: str
    size_mib: int
    built: str  # ISO 8601, UTC
    slurm_version: str
    current: bool = True
    machines: int = 0  # machines made from it, of all state folders on this host
    packages: str = ""  # SHA-256 of the list of its Debian packages with versions
    debian: tuple[DebianRelease, ...] = ()

    @property
    def unused(self) -> bool:
        """Returns whether no machine uses the image and none will be made from it."""
        return not self.current and not self.machines


async def list_images() -> tuple[ImageInfo, ...]:
    """Returns the images on this host, newest first."""
    infos = [info for item in await _labelled("headway.image") for info in [_info(item)] if info is not None]
    found, names = list[ImageInfo](), set[str]()
    for info in sorted(infos, key=lambda info: info.built, reverse=True):
        found.append(replace(info, current=info.current and info.name not in names))
        names |= {info.name} if info.current else set()
    return tuple(found)


async def _labelled(label: str) -> list[dict[str, Any]]:
    argv = ["podman", "images", "--filter", f"label={label}", "--format", "json"]
    return list(json.loads((await run_process(argv, timeout_s=60)).stdout or "[]"))


def _info(item: dict[str, Any]) -> ImageInfo | None:
    label = item.get("Labels") or {}
    name = label.get("headway.image", "")
    tags = [text for text in item.get("Names") or [] if text.startswith(f"{REPOSITORY}:{name}-")]
    if not tags or name not in RECIPES:
        return None
    return ImageInfo(
        name=name,
        tag=tags[0],
        id=item["Id"],
        hash=label.get("headway.hash", ""),
        size_mib=int(item.get("Size", 0)) >> 20,
        built=label.get("headway.built", ""),
        slurm_version=label.get("headway.slurm", ""),
        current=label.get("headway.hash") == inputs_hash(name),
        machines=int(item.get("Containers") or 0),
        packages=label.get("headway.packages", ""),
        debian=releases_of_label(label.get("headway.debian", "")),
    )


def releases_label(releases: Iterable[DebianRelease]) -> str:
    """Returns the text of a label: SUITE=SHA256@DATE, separated by commas."""
    return ",".join(f"{one.suite}={one.sha256}@{one.date}" for one in releases)


def releases_of_label(text: str) -> tuple[DebianRelease, ...]:
    """Returns the releases of `releases_label`; () for an image without the label."""
    return tuple(DebianRelease(*re.split("[=@]", part, maxsplit=2)) for part in text.split(",") if part)


_current_images: dict[str, tuple[float, ImageInfo]] = {}


async def find_current_image(name: str) -> ImageInfo | None:
    """Returns the newest image made from the present inputs, or None. The answer is cached for 20 seconds."""
    tag = current_tag(name)
    known = _current_images.get(tag)
    if known is not None and time.monotonic() - known[0] < 20:
        return known[1]
    for info in await list_images():
        if info.name == name and info.current:
            _current_images[tag] = (time.monotonic(), info)
            return info
    return None


async def get_image(tag: str) -> ImageInfo:
    """Returns the image with this tag. Raises Refused if it is no longer on this host."""
    info = next((info for info in await list_images() if info.tag == tag), None)
    if info is None:
        raise Refused(f"image {tag} no longer exists on this host", hint="headway roll uses the current one")
    return info


async def remove_images(name: str) -> tuple[str, ...]:
    """Removes the images of this name ("all": every image) and returns their tags. Raises Refused while machines use
    one."""
    if name != "all":
        get_recipe(name)
    gone = []
    for info in await list_images():
        if name in ("all", info.name):
            ran = await run_process(["podman", "rmi", info.tag], timeout_s=120, check=False)
            if ran.code != 0:
                raise Refused(
                    f"image {info.tag} can't be removed: {ran.stderr.strip()[-300:]}",
                    hint="take down the clusters that use it first: headway ls",
                )
            clear_cache()
            gone.append(info.tag)
    return tuple(gone)


async def remove_unused_images() -> tuple[str, ...]:
    """Removes outdated images that no machine uses, then outdated bases that no image uses. Returns their tags. Waits
    for running builds, so that nothing they need is removed."""
    async with contextlib.AsyncExitStack() as builds:
        for name in RECIPES:
            await builds.enter_async_context(build_lock(name))
        gone = await _remove(info.tag for info in await list_images() if info.unused)
        parents = {item.get("ParentId") for item in await _labelled("headway.image")}
        current = {f"{BASE_REPOSITORY}:{name}-{base_hash(name)}" for name in RECIPES}
        bases = [item for item in await _labelled("headway.base") if item["Id"] not in parents]
        tags = {text for item in bases for text in item.get("Names") or [] if text.startswith(f"{BASE_REPOSITORY}:")}
        return (*gone, *await _remove(sorted(tags - current)))


async def _remove(tags: Iterable[str]) -> list[str]:
    """Removes tags and returns those that are gone. podman refuses a tag that a new machine uses; a later call removes
    it."""
    codes = {text: (await run_process(["podman", "rmi", text], timeout_s=120, check=False)).code for text in tags}
    return [text for text, code in codes.items() if code == 0]


def build_lock(name: str) -> contextlib.AbstractAsyncContextManager[None]:
    """Returns the lock of builds of this image, and of removals."""
    return async_file_lock(host_lock_folder() / f"headway-image-{name}.lock")


def clear_cache() -> None:
    """Clears the cache of `find_current_image`, which a build makes outdated."""
    _current_images.clear()
