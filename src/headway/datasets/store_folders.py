"""Where the file store keeps content, versions, manifests and unfinished work."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from headway.datasets.source import Item
from headway.errors import Refused


class StoreFolders:
    """The folders of the file store in `root`; see `file_store`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.objects = root / "objects"
        self.drafts = root / "drafts"

    def versions(self, name: str) -> Path:
        """Returns the folder of a dataset's versions, which is mounted."""
        return self.root / "versions" / name

    def manifest(self, name: str, number: int) -> Path:
        """Returns the file with a version's manifest."""
        return self.root / "manifests" / name / f"{number}.jsonl"

    def journal(self, name: str) -> Path:
        """Returns the journal of a dataset's unfinished import."""
        return self.drafts / f"{name}.journal"

    def object(self, digest: str, *, executable: bool) -> Path:
        """Returns the file with a content."""
        return self.objects / digest[:2] / (digest + ".x" * executable)

    def has(self, digest: str, item: Item) -> bool:
        """Returns whether the content of an item is stored."""
        try:
            return self.object(digest, executable=item.executable).stat().st_size == item.bytes
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Raises Refused for an OSError in its block."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "free space there, then repeat: it continues where it stopped" if full else "headway server logs"
            where = error.filename or self.root
            raise Refused(f"{where}: {error.strerror or error}", hint=hint) from error
