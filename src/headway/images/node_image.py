"""The node image: what it is made from, and which ones podman keeps here. `image_build` makes it.

It has two layers: a base with all packages (minutes), and over it the files of node/image/rootfs and customize.sh
(seconds). Each tag carries a hash of everything the layer is made from, so it is built again only when one of those
changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import tarfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import NotFound, Refused
from headway.images.podman import lock_folder, locked
from headway.paths import node_dir
from headway.transport.process import run

REPOSITORY = "localhost/headway-node"
BASE_REPOSITORY = "localhost/headway-base"
_RECIPE = 1  # raise when this module makes a different image from the same inputs

_COMMON: list[str] = """
systemd systemd-sysv dbus libpam-systemd libpam-modules openssh-server munge slurmctld slurmd slurmdbd slurmrestd
slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin libpam-slurm-adopt libnss-extrausers
mariadb-server prometheus prometheus-alertmanager python3-torch python3-numpy lmod
iproute2 iputils-ping procps less vim-tiny nano rsync
gcc libc6-dev libslurm-dev openmpi-bin libopenmpi-dev
skopeo umoci squashfs-tools squashfuse fuse3 bubblewrap
ca-certificates bsd-mailx msmtp-mta msmtp bash-completion locales tzdata kmod util-linux-extra sudo git make curl
""".split()  # noqa: SIM905 (a list of this length reads better as words)


# What JupyterLab needs to run; base.sh adds the program itself. Debian 12 has none that fits.
_LAB = [
    "python3-jupyterlab-server",
    "python3-jupyter-server",
    "python3-notebook-shim",
    "python3-async-lru",
    "python3-ipykernel",
]


# Of these, what a node that is no head has no use for: an image carries them all, machines one owns only what they need.
_HEAD_ONLY = frozenset(
    ("slurmctld", "slurmdbd", "slurmrestd", "slurm-wlm-mysql-plugin", "mariadb-server", "prometheus",
     "prometheus-alertmanager", "bsd-mailx", "msmtp-mta", "msmtp")
)  # fmt: skip
# What a machine one owns needs beside that; an image's machines get it from their host.
_OWN = ("nftables", "libc-bin", "python3")
_NFS = {"head": ("nfs-kernel-server",), "node": ("nfs-common",)}
_PARTS = ("spank", "pam", "parts.sh", "torch-without-libuv.sh")  # of node/image, with rootfs' container
_CONTAINER = "rootfs/usr/lib/headway/container"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an image is made of. `download_mb` and `build_s` were measured; they are what a user is told beforehand."""

    name: str
    suite: str
    slurm_version: str
    packages: tuple[str, ...]
    download_mb: int
    build_s: int
    stable: bool = True  # the suite is released, and has updates and security fixes beside it


RECIPES = {
    "debian13": Recipe("debian13", "trixie", "24.11", (*_COMMON, *_LAB), download_mb=445, build_s=150),
    "debian14": Recipe("debian14", "forky", "26.05", (*_COMMON, *_LAB), download_mb=445, build_s=150, stable=False),
    "debian12": Recipe("debian12", "bookworm", "22.05", tuple(_COMMON), download_mb=435, build_s=150),
}


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image that is there. `current` is False when its inputs have changed since."""

    name: str
    tag: str
    id: str
    hash: str
    size_mib: int
    built: str  # ISO 8601, UTC
    slurm_version: str
    current: bool = True
    machines: int = 0  # made from it, of every state folder here

    @property
    def unused(self) -> bool:
        """Nothing is made from it now, and nothing new will be."""
        return not self.current and not self.machines


def recipe(name: str) -> Recipe:
    """The recipe of this name. Raises NotFound."""
    if name not in RECIPES:
        raise NotFound(f"there is no node image {name!r}", hint=f"use one of: {', '.join(RECIPES)}")
    return RECIPES[name]


def packages_of(name: str, role: str, *, nfs: bool) -> tuple[str, ...]:
    """What a machine one owns is given, from its own sources: of the image's list what its role ("head" or "node") uses.
    Not what JupyterLab needs: the program itself comes with the image alone."""
    listed = (one for one in recipe(name).packages if one not in _LAB and (role == "head" or one not in _HEAD_ONLY))
    return (*listed, *_OWN, *(_NFS[role] if nfs else ()))


def parts() -> tuple[bytes, str]:
    """(the sources of Headway's own parts as a tar archive, the digest of what is in it)."""
    folder = files_folder()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, name in _part_files(folder):
            entry = tarfile.TarInfo(name)
            content = path.read_bytes()
            entry.size, entry.mode = len(content), 0o755 if path.suffix == ".sh" else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue(), _files_hash(folder, (*_PARTS, _CONTAINER))[:16]


def _part_files(folder: Path) -> Iterator[tuple[Path, str]]:
    for name in _PARTS:
        for path in sorted(p for p in (folder / name, *(folder / name).rglob("*")) if p.is_file()):
            yield path, str(path.relative_to(folder))
    for path in sorted((folder / _CONTAINER).glob("*.py")):
        yield path, f"container/{path.name}"


def files_folder() -> Path:
    """node/image, in the source tree or in an installed package. Raises Refused when neither holds it."""
    folder = node_dir() / "image"
    if not folder.is_dir():
        raise Refused("the files of the node image are missing from this installation", hint="install headway again")
    return folder


def _files_hash(folder: Path, names: Sequence[str]) -> str:
    """Hash over files and folders of node/image: names, executable bits, contents."""
    digest = hashlib.sha256()
    found = {path for name in names for path in (folder / name, *(folder / name).rglob("*")) if path.is_file()}
    for path in sorted(path for path in found if "__pycache__" not in path.parts):
        executable = bool(path.stat().st_mode & 0o100)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder)} {executable} {content}\n".encode())
    return digest.hexdigest()


def base_hash(name: str, folder: Path | None = None) -> str:
    """12 hex digits over all that the base is made from."""
    made_from = recipe(name)
    files = _files_hash(folder or files_folder(), ("base", "base.sh"))
    text = f"{_RECIPE}\n{made_from.suite}\n{' '.join(sorted(made_from.packages))}\n{files}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def inputs_hash(name: str, folder: Path | None = None) -> str:
    """12 hex digits over all that the image is made from."""
    folder = folder or files_folder()
    files = _files_hash(folder, sorted(path.name for path in folder.iterdir()))
    return hashlib.sha256(f"{base_hash(name, folder)}\n{files}".encode()).hexdigest()[:12]


def tag(name: str) -> str:
    return f"{REPOSITORY}:{name}-{inputs_hash(name)}"


async def list_images() -> tuple[ImageInfo, ...]:
    """The images on this host, newest first."""
    infos = [info for item in await _labelled("headway.image") for info in [_info(item)] if info is not None]
    return tuple(sorted(infos, key=lambda info: info.built, reverse=True))


async def _labelled(label: str) -> list[dict[str, Any]]:
    argv = ["podman", "images", "--filter", f"label={label}", "--format", "json"]
    return list(json.loads((await run(argv, timeout_s=60)).stdout or "[]"))


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
    )


_seen: dict[str, tuple[float, ImageInfo]] = {}


async def find(name: str) -> ImageInfo | None:
    """The image made from the present inputs, or None."""
    wanted = tag(name)
    known = _seen.get(wanted)
    if known is not None and time.monotonic() - known[0] < 20:
        return known[1]
    for info in await list_images():
        if info.tag == wanted:
            _seen[wanted] = (time.monotonic(), info)
            return info
    return None


async def tagged(tag: str) -> ImageInfo:
    """The image of this tag. Raises Refused when it is no longer on this host."""
    info = next((info for info in await list_images() if info.tag == tag), None)
    if info is None:
        raise Refused(f"there is no image {tag} on this host any more", hint="headway roll takes the present one")
    return info


async def remove(name: str) -> tuple[str, ...]:
    """Removes the images of this name ("all": every one); returns their tags. Raises Refused while machines use one."""
    if name != "all":
        recipe(name)
    gone = []
    for info in await list_images():
        if name in ("all", info.name):
            ran = await run(["podman", "rmi", info.tag], timeout_s=120, check=False)
            if ran.code != 0:
                raise Refused(
                    f"image {info.tag} can't be removed: {ran.stderr.strip()[-300:]}",
                    hint="take down the clusters that use it first: headway ls",
                )
            _seen.pop(info.tag, None)
            gone.append(info.tag)
    return tuple(gone)


async def remove_unused() -> tuple[str, ...]:
    """Removes the images of earlier inputs that no machine is made from, then the bases of earlier inputs that no image
    is made from; returns their tags. Waits for a build, so that nothing of it is taken away."""
    with contextlib.ExitStack() as builds:
        for name in RECIPES:
            await asyncio.to_thread(builds.enter_context, build_lock(name))
        gone = await _remove(info.tag for info in await list_images() if info.unused)
        parents = {item.get("ParentId") for item in await _labelled("headway.image")}
        current = {f"{BASE_REPOSITORY}:{name}-{base_hash(name)}" for name in RECIPES}
        bases = [item for item in await _labelled("headway.base") if item["Id"] not in parents]
        tags = {text for item in bases for text in item.get("Names") or [] if text.startswith(f"{BASE_REPOSITORY}:")}
        return (*gone, *await _remove(sorted(tags - current)))


async def _remove(tags: Iterable[str]) -> list[str]:
    """The tags that are gone. podman refuses where a machine was made just now; the next time is soon enough."""
    codes = {text: (await run(["podman", "rmi", text], timeout_s=120, check=False)).code for text in tags}
    return [text for text, code in codes.items() if code == 0]


def build_lock(name: str) -> contextlib.AbstractContextManager[None]:
    """Held by whoever builds images of this name, or removes some."""
    return locked(lock_folder() / f"headway-image-{name}.lock")


def forget_seen() -> None:
    """What `find` remembers; a build makes it wrong."""
    _seen.clear()
