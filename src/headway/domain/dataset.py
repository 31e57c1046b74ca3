"""Versions of datasets. A version is copied once and never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.domain.storage.folders import Dataset, StorageFolders

FOLDER = "/datasets"  # mount point on machines: /datasets/NAME/VERSION


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """One version of a dataset. `digest`: sha256 of its manifest, which lists every file with its own sha256."""

    cluster: str
    name: str
    number: int
    digest: str
    files: int
    bytes: int
    source: str  # where it was copied from
    person: str
    at: float
    checked_at: float | None = None  # time of the last check that read every file
    damage: str = ""  # damage that the last check found
    removed_at: float | None = None
    removed_by: str = ""
    forced: bool = False  # removed although the lineage of jobs names it

    @property
    def label(self) -> str:
        """The version as people write it: NAME@NUMBER."""
        return f"{self.name}@{self.number}"

    @property
    def path(self) -> str:
        """The version's path on every machine."""
        return f"{FOLDER}/{self.name}/{self.number}"


def mount_versions(storage: StorageFolders, folders: Mapping[str, str]) -> StorageFolders:
    """Returns the storage with datasets that have versions. `folders`: name -> folder on the server's machine."""
    more = (
        Dataset(name, folder, f"{FOLDER}/{name}", versioned=True)
        for name, folder in sorted(folders.items())
        if not conflicting_field(storage, name)
    )
    return replace(storage, datasets=(*storage.datasets, *more))


def conflicting_field(storage: StorageFolders, name: str) -> str:
    """Returns the path of the field of the cluster file that uses the name or the mount point of this dataset; "" for
    none."""
    mine = f"{FOLDER}/{name}/"
    names_and_mounts = [
        *(
            (f"storage.datasets[{i}]", dataset.name, dataset.mount)
            for i, dataset in enumerate(storage.datasets)
            if not dataset.versioned
        ),
        *((f"storage.volumes[{i}]", volume.name, volume.path) for i, volume in enumerate(storage.volumes)),
    ]
    for field, other, mount in names_and_mounts:
        if other == name or mine.startswith(f"{mount}/") or f"{mount}/".startswith(mine):
            return field
    return ""


def format_bytes(count: int) -> str:
    """Returns a size for people to read: 3.2 GiB."""
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} bytes" if units[0] == "bytes" else f"{value:.1f} {units[0]}"
