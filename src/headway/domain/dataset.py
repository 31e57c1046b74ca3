"""A dataset's versions: what was brought in once and never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.domain.cluster import Dataset, Storage

FOLDER = "/datasets"  # where they appear on machines: /datasets/NAME/VERSION


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """`digest`: sha256 of its manifest, which names every file with its own."""

    cluster: str
    name: str
    number: int
    digest: str
    files: int
    bytes: int
    source: str  # where it was brought from
    person: str
    at: float
    checked_at: float | None = None  # when every file was last read again
    damage: str = ""  # what was found wrong then
    removed_at: float | None = None
    removed_by: str = ""
    forced: bool = False  # removed although jobs' lineage named it

    @property
    def label(self) -> str:
        return f"{self.name}@{self.number}"

    @property
    def path(self) -> str:
        """On every machine."""
        return f"{FOLDER}/{self.name}/{self.number}"


def mount_versions(storage: Storage, folders: Mapping[str, str]) -> Storage:
    """The storage with datasets that have versions: name -> the folder of the server's machine that holds them."""
    more = (
        Dataset(name, folder, f"{FOLDER}/{name}", versioned=True)
        for name, folder in sorted(folders.items())
        if not conflicting_field(storage, name)
    )
    return replace(storage, datasets=(*storage.datasets, *more))


def conflicting_field(storage: Storage, name: str) -> str:
    """What stands in the cluster's file where a dataset of this name would be: the path of its field; "" for nothing."""
    mine = f"{FOLDER}/{name}/"
    told = [
        *(
            (f"storage.datasets[{i}]", one.name, one.mount)
            for i, one in enumerate(storage.datasets)
            if not one.versioned
        ),
        *((f"storage.volumes[{i}]", one.name, one.path) for i, one in enumerate(storage.volumes)),
    ]
    for field, other, mount in told:
        if other == name or mine.startswith(f"{mount}/") or f"{mount}/".startswith(mine):
            return field
    return ""


def format_bytes(count: int) -> str:
    """Bytes for a person: 3.2 GiB."""
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} bytes" if units[0] == "bytes" else f"{value:.1f} {units[0]}"
