"""The space of volumes."""

from __future__ import annotations

from dataclasses import dataclass

# Used share of a volume or a quota from which on it is shown as nearly full, and as full.
NEARLY_FULL = 0.9
FULL = 0.97


@dataclass(frozen=True, slots=True)
class VolumeSpace:
    """Size and free space of a volume in bytes; None where `fault` says why they are not known."""

    path: str
    size: int | None
    free: int | None
    fault: str = ""
