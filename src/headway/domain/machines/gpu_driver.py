"""The NVIDIA driver of owned machines: what the cluster file wants, and what a survey found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PackageRepository:
    """A repository of Debian packages."""

    url: str
    suite: str  # "trixie"; "/" = a flat repository, without components
    components: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # lines of the OpenPGP public key that signs it, ASCII-armored


@dataclass(frozen=True, slots=True)
class GpuDriver:
    """The driver that owned machines get. `install` False: the driver is whatever the machine has."""

    install: bool = False
    branch: str = ""  # "580"; "" = the newest that the repository has
    open_modules: bool = True  # NVIDIA's open kernel modules, otherwise the proprietary ones
    repository: PackageRepository | None = None  # None: the machine's own distribution
    dcgm: bool = False

    @property
    def source(self) -> str:
        """Names the origin of the packages for a message."""
        return self.repository.url if self.repository else "the machine's distribution"

    def is_met_by(self, version: str) -> bool:
        """Returns whether a driver of this version, "" for none, is of the wanted branch."""
        return bool(version) and self.branch in ("", version.partition(".")[0])


@dataclass(frozen=True, slots=True)
class DetectedDriver:
    """What a survey found of the driver on a machine with NVIDIA GPUs."""

    loaded: str = ""  # version of the loaded kernel module, "570.124.06"
    on_disk: str = ""  # version of the module that the running kernel would load
    libraries: str = ""  # version of libcuda
    offered: str = ""  # newest version in the package sources that the machine has now
    nouveau: bool = False  # whether nouveau, Linux's own driver, holds the GPUs
    secure_boot: bool = False
    nvswitches: int = 0
    dcgm: bool = False  # whether DCGM is installed
