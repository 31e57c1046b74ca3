"""The only declaration of which node image has which Debian and Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.catalog.slurm_releases import SLURM_RELEASES, SlurmRelease, release_of
from headway.errors import Fault, InvalidSpec


@dataclass(frozen=True, slots=True)
class Image:
    """A node image: a Debian release with the Slurm that it packages. Sizes and times are measured values."""

    name: str  # in the cluster file, and in /etc/os-release of the machine
    debian: str  # "Debian 13"
    suite: str  # Debian's code name
    slurm: SlurmRelease
    download_mb: int  # size of the packages for one build
    build_s: int
    released: bool = True  # Debian has released the suite: it has updates and security fixes
    has_jupyterlab: bool = True  # Debian packages what JupyterLab needs
    tested_on_owned_machines: bool = True
    runs_on_cgroup_v1: bool = True  # its systemd (before 258) can manage cgroup v1, on a host that has it

    @property
    def summary(self) -> str:
        """ "Debian 13, Slurm 24.11"."""
        return f"{self.debian}{'' if self.released else ' (testing)'}, Slurm {self.slurm.name}"


DEFAULT_IMAGE = "debian13"
IMAGES: Mapping[str, Image] = {
    image.name: image
    for image in (
        Image("debian13", "Debian 13", "trixie", SLURM_RELEASES["24.11"], download_mb=505, build_s=150),
        Image(
            "debian14", "Debian 14", "forky", SLURM_RELEASES["26.05"], download_mb=505, build_s=150,
            released=False, tested_on_owned_machines=False, runs_on_cgroup_v1=False,
        ),
        Image("debian12", "Debian 12", "bookworm", SLURM_RELEASES["22.05"], download_mb=490, build_s=150, has_jupyterlab=False),
    )
}  # fmt: skip


def slurm_release(name: str) -> SlurmRelease:
    """Returns the release of a Slurm version: "24.11" or "24.11.5". Raises InvalidSpec if no image has it."""
    release = SLURM_RELEASES.get(release_of(name))
    if release is None:
        hint = f"use one of the node images {images_in_words()}"
        raise InvalidSpec([Fault("image", f"Slurm {name} is not supported", hint)])
    return release


def images_in_words() -> str:
    """Returns the list of images for messages: "debian13 (Slurm 24.11), debian14 (26.05), debian12 (22.05)"."""
    first, *others = IMAGES.values()
    return ", ".join(
        [f"{first.name} (Slurm {first.slurm.name})", *(f"{image.name} ({image.slurm.name})" for image in others)]
    )
