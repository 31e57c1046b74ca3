"""The files that an unfinished import has stored already, so that the next try does not read them again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from headway.datasets.source import Item

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ImportJournal:
    """The files that an import has stored so far, one per line. A journal from before the last boot is ignored:
    the data that it names may not have reached the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[str, str]] = {}

    def __enter__(self) -> ImportJournal:
        boot = _BOOT_ID.read_text().strip()
        rows = list(self._rows(self._path))
        if rows and rows[0] == [boot]:
            self._known = {row[0]: (row[1], row[2]) for row in rows[1:] if len(row) == 3}
            self._file = self._path.open("a")
            self._file.write("\n")  # ends a line that was cut off
        else:
            self._file = self._path.open("w")
            self._file.write(json.dumps([boot]) + "\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def digest(self, item: Item) -> str:
        """Returns the digest of the file as it is now, or "" where it has not been stored."""
        stamp, digest = self._known.get(item.path, ("", ""))
        return digest if stamp == item.stamp else ""

    def note(self, item: Item, digest: str) -> None:
        """Records a stored file."""
        self._file.write(json.dumps([item.path, item.stamp, digest]) + "\n")
        self._file.flush()

    @staticmethod
    def _rows(path: Path) -> Iterator[list[str]]:
        try:
            lines = path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            with contextlib.suppress(ValueError):  # a line that was cut off
                yield json.loads(line)

    @staticmethod
    def digests(path: Path) -> set[str]:
        """Returns all digests in a journal."""
        return {row[2] for row in ImportJournal._rows(path) if len(row) == 3}
