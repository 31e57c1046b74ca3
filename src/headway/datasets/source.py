"""What a source of a dataset's files offers: its listing and the content of each file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

PIECE = 4 << 20  # bytes read at once


@dataclass(frozen=True, slots=True)
class Item:
    """A file to be added to a dataset. `stamp` changes whenever the content may have changed."""

    path: str  # in the version, with slashes
    bytes: int
    executable: bool
    stamp: str


@dataclass(frozen=True)
class Listing:
    """The content of a source."""

    files: tuple[Item, ...]
    links: tuple[tuple[str, str], ...] = ()  # (path, target within the same version)
    folders: tuple[str, ...] = ()  # empty folders only

    @property
    def size(self) -> int:
        """Returns the bytes of all files."""
        return sum(item.bytes for item in self.files)


class DatasetSource(Protocol):
    """The place that files of a dataset are read from."""

    def listing(self) -> Listing:
        """Returns the contents of the source. Raises Refused for anything that a dataset can't contain."""
        ...

    def read(self, item: Item) -> Iterator[bytes]:
        """Yields the content of a file. Raises Refused when the file has changed since it was listed."""
        ...

    def close(self) -> None:
        """Frees what the source holds open. No call follows."""
        ...


def pieces(handle: int) -> Iterator[bytes]:
    """Yields the rest of an open file, PIECE bytes at a time."""
    while piece := os.read(handle, PIECE):
        yield piece
