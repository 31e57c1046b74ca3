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

from headway.catalog.releases import IMAGES, Image
from headway.errors import NotFound, Refused
from headway.paths import node_dir

REPOSITORY = "localhost/headway-node"
BASE_REPOSITORY = "localhost/headway-base"
_RECIPE_REVISION = 1  # increase when this module makes a different image from the same inputs

_COMMON: list[str] = """
systemd systemd-sysv dbus libpam-systemd libpam-modules openssh-server munge slurmctld slurmd slurmdbd slurmrestd
slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin libpam-slurm-adopt libnss-extrausers
mariadb-server prometheus prometheus-alertmanager python3-torch python3-numpy lmod
iproute2 iputils-ping nftables nfs-common nfs-kernel-server procps less rsync
gcc g++ gfortran libc6-dev libslurm-dev openmpi-bin libopenmpi-dev cmake make pkgconf python3-dev python3-venv python3-pip
skopeo umoci squashfs-tools squashfuse fuse3 bubblewrap crun
vim nano tmux screen htop tree jq curl wget unzip git man-db manpages bash-completion
ca-certificates bsd-mailx msmtp-mta msmtp locales tzdata kmod util-linux-extra sudo
""".split()  # noqa: SIM905 (a list of this length reads better as words)


# Packages that JupyterLab needs; base.sh adds JupyterLab itself. Debian 12 lacks suitable ones.
_JUPYTERLAB = [
    "python3-jupyterlab-server",
    "python3-jupyter-server",
    "python3-notebook-shim",
    "python3-async-lru",
    "python3-ipykernel",
]


# Packages that only heads use. An image has all packages; an owned machine gets only those of its role.
_HEAD_ONLY = frozenset(
    ("slurmctld", "slurmdbd", "slurmrestd", "slurm-wlm-mysql-plugin", "mariadb-server", "prometheus",
     "prometheus-alertmanager", "bsd-mailx", "msmtp-mta", "msmtp")
)  # fmt: skip
# Packages without which the steps on an owned machine can't work; every image has them.
_OWNED_MACHINES = ("libc-bin", "python3")
# Only for owned machines: the head exports folders that the machines do not share.
_NFS = {"head": ("nfs-kernel-server",), "node": ("nfs-common",)}
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
        return self.image.name


RECIPES = {
    image.name: Recipe(image, (*_COMMON, *_JUPYTERLAB) if image.has_jupyterlab else tuple(_COMMON))
    for image in IMAGES.values()
}


def get_recipe(name: str) -> Recipe:
    """Returns the recipe of this name. Raises NotFound."""
    if name not in RECIPES:
        raise NotFound(f"unknown node image {name!r}", hint=f"use one of: {', '.join(RECIPES)}")
    return RECIPES[name]


def packages_for_role(name: str, role: str, *, nfs: bool) -> tuple[str, ...]:
    """Returns the packages that an owned machine gets from its own sources: those of the image that its role ("head" or
    "node") uses. JupyterLab's packages are left out, because JupyterLab itself comes only with the image."""
    listed = (
        package
        for package in get_recipe(name).packages
        if package not in (*_JUPYTERLAB, "nfs-common", "nfs-kernel-server")
        and (role == "head" or package not in _HEAD_ONLY)
    )
    return (*listed, *_OWNED_MACHINES, *(_NFS[role] if nfs else ()))


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
    files = _files_hash(folder or files_folder(), ("base", "base.sh"))
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
