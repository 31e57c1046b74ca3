"""Recipes of the node images, and the hashes that show whether one must be built again.

An image has two layers: a base with all packages (minutes), and on top the files of node/image/rootfs and customize.sh
(seconds). Each tag contains a hash of all inputs of its layer, so a layer is built again only when one of them changed.
`images.build` builds the images, `images.local_images` lists those that podman stores."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.catalog.node_images import IMAGES, Image
from headway.errors import NotFound, Refused
from headway.images.packages import image_packages
from headway.paths import node_dir

REPOSITORY = "localhost/headway-node"
BASE_REPOSITORY = "localhost/headway-base"
_RECIPE_REVISION = 1  # increase when this module makes a different image from the same inputs

# Folders and files in node/image; the container package of rootfs is sent too
_PARTS = ("spank", "pam", "gpu", "bin", "build_parts.sh", "torch-without-libuv.sh")
_CONTAINER = "rootfs/usr/lib/headway/container"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The inputs of one node image."""

    image: Image
    packages: tuple[str, ...]

    @property
    def name(self) -> str:
        """Returns the image's name in the catalogue, such as `debian13`."""
        return self.image.name


RECIPES = {image.name: Recipe(image, image_packages(image)) for image in IMAGES.values()}


def get_recipe(name: str) -> Recipe:
    """Returns the recipe of this name. Raises NotFound."""
    if name not in RECIPES:
        raise NotFound(f"unknown node image {name!r}", hint=f"use one of: {', '.join(RECIPES)}")
    return RECIPES[name]


def own_parts_archive() -> tuple[bytes, str]:
    """Returns the sources of Headway's own parts as a tar archive, and a digest of its files."""
    folder = files_folder()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, name in _part_files(folder):
            entry = tarfile.TarInfo(name)
            content = path.read_bytes()
            entry.size, entry.mode = len(content), 0o755 if path.stat().st_mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue(), _files_hash(folder, (*_PARTS, _CONTAINER))[:16]


def _part_files(folder: Path) -> Iterator[tuple[Path, str]]:
    for name in _PARTS:
        for path in sorted(p for p in (folder / name, *(folder / name).rglob("*")) if p.is_file()):
            yield path, str(path.relative_to(folder))
    for path in sorted((folder / _CONTAINER).glob("*.py")):
        yield path, f"container/{path.name}"


def files_folder() -> Path:
    """Returns node/image, in the source tree or in an installed package. Raises Refused if neither has it."""
    folder = node_dir() / "image"
    if not folder.is_dir():
        raise Refused("the files of the node image are missing from this installation", hint="install headway again")
    return folder


def _files_hash(folder: Path, names: Sequence[str]) -> str:
    """Returns a hash over files and folders of node/image: names, executable bits, contents."""
    digest = hashlib.sha256()
    found = {path for name in names for path in (folder / name, *(folder / name).rglob("*")) if path.is_file()}
    for path in sorted(path for path in found if "__pycache__" not in path.parts):
        executable = bool(path.stat().st_mode & 0o100)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder)} {executable} {content}\n".encode())
    return digest.hexdigest()


def base_hash(name: str, folder: Path | None = None) -> str:
    """Returns 12 hex digits of a hash over all inputs of the base."""
    made_from = get_recipe(name)
    files = _files_hash(folder or files_folder(), ("base", "after_packages.sh"))
    text = f"{_RECIPE_REVISION}\n{made_from.image.suite}\n{' '.join(sorted(made_from.packages))}\n{files}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def inputs_hash(name: str, folder: Path | None = None) -> str:
    """Returns 12 hex digits of a hash over all inputs of the image."""
    folder = folder or files_folder()
    files = _files_hash(folder, sorted(path.name for path in folder.iterdir()))
    return hashlib.sha256(f"{base_hash(name, folder)}\n{files}".encode()).hexdigest()[:12]


def current_tag(name: str) -> str:
    """Returns the tag of the image with the present inputs."""
    return f"{REPOSITORY}:{name}-{inputs_hash(name)}"
