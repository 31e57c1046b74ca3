"""The space of volumes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VolumeUsage:
    """Size and free space of a volume in bytes; None where `fault` says why they are not known."""

    path: str
    size: int | None
    free: int | None
    fault: str = ""
