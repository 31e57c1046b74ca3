"""A dataset's versions: what was brought in once and never changes."""

from __future__ import annotations

from dataclasses import dataclass

FOLDER = "/datasets"  # where they appear on machines: /datasets/NAME/VERSION


@dataclass(frozen=True, slots=True)
class Version:
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
