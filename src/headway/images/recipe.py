"""What a node image is made of, and the hashes that tell whether one has to be built again.

An image has two layers: a base with all packages (minutes), and over it the files of node/image/rootfs and customize.sh
(seconds). Each tag carries a hash of everything that its layer is made from, so that a layer is built again only when one of
those inputs changed. `images.build` builds them, `images.local_images` has those that podman keeps.
"""

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
_RECIPE_REVISION = 1  # raise when this module makes a different image from the same inputs

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
_JUPYTERLAB = [
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
_OWNED_MACHINES_ONLY = ("nftables", "libc-bin", "python3")
_NFS = {"head": ("nfs-kernel-server",), "node": ("nfs-common",)}
_PARTS = ("spank", "pam", "parts.sh", "torch-without-libuv.sh")  # of node/image, with rootfs' container
_CONTAINER = "rootfs/usr/lib/headway/container"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one node image is made of."""

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
    """The recipe of this name. Raises NotFound."""
    if name not in RECIPES:
        raise NotFound(f"there is no node image {name!r}", hint=f"use one of: {', '.join(RECIPES)}")
    return RECIPES[name]


def packages_for_role(name: str, role: str, *, nfs: bool) -> tuple[str, ...]:
    """What a machine one owns is given, from its own sources: of the image's list what its role ("head" or "node") uses.
    Not what JupyterLab needs: the program itself comes with the image alone."""
    listed = (
        one for one in get_recipe(name).packages if one not in _JUPYTERLAB and (role == "head" or one not in _HEAD_ONLY)
    )
    return (*listed, *_OWNED_MACHINES_ONLY, *(_NFS[role] if nfs else ()))


def own_parts_archive() -> tuple[bytes, str]:
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
    made_from = get_recipe(name)
    files = _files_hash(folder or files_folder(), ("base", "base.sh"))
    text = f"{_RECIPE_REVISION}\n{made_from.image.suite}\n{' '.join(sorted(made_from.packages))}\n{files}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def inputs_hash(name: str, folder: Path | None = None) -> str:
    """12 hex digits over all that the image is made from."""
    folder = folder or files_folder()
    files = _files_hash(folder, sorted(path.name for path in folder.iterdir()))
    return hashlib.sha256(f"{base_hash(name, folder)}\n{files}".encode()).hexdigest()[:12]


def current_tag(name: str) -> str:
    return f"{REPOSITORY}:{name}-{inputs_hash(name)}"
