"""storage: volumes and datasets."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from headway.validation.field_types import (
    FileSection,
    Name,
    Size,
    checked_mount_line,
)


class VolumePart(FileSection):
    """A shared folder, the same on all machines."""

    quota: Size | None = Field(
        None,
        description="Largest size of each user's folder in it, on ext4 or XFS mounted with usrquota,prjquota (default: none).",
        examples=["100 GiB"],
    )


class DatasetPart(FileSection):
    """A folder on every machine (default: read-only)."""

    name: Name = Field(description="The dataset's name.", examples=["tiny"])
    path: str | None = Field(
        None,
        description="Source folder on the server's machine; optional with provider ssh.",
        examples=["./data/tiny"],
    )
    mount: str | None = Field(
        None, description="Mount point on the machines (default: /datasets/NAME).", examples=["/datasets/tiny"]
    )
    read_only: bool = Field(True, description="Mount it read-only.")


class MountedVolumePart(FileSection):
    """An external file system that every machine mounts."""

    name: Name = Field(description="The volume's name.", examples=["models"])
    path: str = Field(description="Mount point on the machines.", examples=["/models"])
    mount: Annotated[str, AfterValidator(checked_mount_line)] = Field(
        description="Type, source and options, as in a line of fstab.",
        examples=["nfs4 filer:/export/models rw,hard", "lustre mgs@tcp:/fsx", "fuse.sshfs box:/srv/data ro"],
    )


class StoragePart(FileSection):
    """Shared storage: /home, /scratch, datasets and external file systems."""

    home: VolumePart = Field(default_factory=VolumePart, description="/home on every machine.")
    scratch: VolumePart = Field(default_factory=VolumePart, description="/scratch on every machine, for checkpoints.")
    datasets: list[DatasetPart] = Field(default_factory=list, max_length=1000, description="Datasets.")
    volumes: list[MountedVolumePart] = Field(default_factory=list, max_length=50, description="External file systems.")
    state: str | None = Field(
        None,
        description="Provider ssh: folder for Slurm's state (default: on the head's disk). With controllers: 2 both heads mount "
        "its file system, and neither serves it.",
        examples=["/shared/headway"],
    )
