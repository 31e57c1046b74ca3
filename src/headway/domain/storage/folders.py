"""What every machine of a cluster mounts: the folders of users, datasets and volumes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dataset:
    """A folder that every machine mounts."""

    name: str
    source: str  # absolute path on the server's machine ("" where the machines mount it themselves)
    mount: str
    read_only: bool = True
    # Made by `headway dataset add`, with versions: the cluster file does not list it, and Headway keeps `source` (with
    # provider ssh, on the machines).
    versioned: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """A file system that every machine mounts from another server: NFS, Lustre, BeeGFS, WekaFS, FUSE."""

    name: str
    path: str  # mount point
    type: str  # "nfs4", "lustre", "fuse.sshfs"; "none" with the option bind
    source: str
    options: tuple[str, ...] = ()

    @property
    def read_only(self) -> bool:
        """Returns whether the volume is mounted read-only."""
        return "ro" in self.options


@dataclass(frozen=True, slots=True)
class StorageFolders:
    """The folders of users' files, and the folder of Slurm's state."""

    home: str = "/home"
    scratch: str = "/scratch"
    datasets: tuple[Dataset, ...] = ()
    volumes: tuple[Volume, ...] = ()
    state: str = ""  # folder on a file system that all heads mount; "" = the provider gives the heads one
    home_quota: int | None = None  # bytes of each user's home; None: no limit
    scratch_quota: int | None = None  # bytes of each user's folder on scratch

    @property
    def quotas(self) -> dict[str, int]:
        """Limit of each user's folder in bytes, by volume that has one."""
        limits = {self.home: self.home_quota, self.scratch: self.scratch_quota}
        return {path: limit for path, limit in limits.items() if limit is not None}

    @property
    def paths(self) -> tuple[str, ...]:
        """Mount points of everything that people keep files on."""
        return self.home, self.scratch, *(volume.path for volume in self.volumes)
