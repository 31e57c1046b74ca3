"""The manifest of a dataset version: every file with its SHA-256, links and empty folders, as lines of JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field

from headway.datasets.source import Listing
from headway.errors import Refused


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """A file of a version."""

    path: str
    sha256: str
    bytes: int
    executable: bool = False


@dataclass(frozen=True)
class DatasetManifest:
    """Every file of a version with its SHA-256, the links, and the empty folders. `text` is the manifest as
    stored."""

    files: tuple[DatasetFile, ...]
    links: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()
    text: bytes = field(default=b"", repr=False)

    @property
    def digest(self) -> str:
        """Returns the SHA-256 of the manifest's text."""
        return hashlib.sha256(self.text).hexdigest()

    @property
    def size(self) -> int:
        """Returns the bytes of all files."""
        return sum(entry.bytes for entry in self.files)

    @staticmethod
    def of(files: Collection[DatasetFile], listing: Listing) -> DatasetManifest:
        """Returns the manifest of these files. Its text is the same for the same content, from any source. Raises
        Refused for a path that leads out of the version."""
        for path in (*(entry.path for entry in files), *(path for path, _ in listing.links), *listing.folders):
            if not path or path.startswith("/") or ".." in path.split("/"):
                raise Refused(f"{path!r} is not a path within a dataset version", hint="rename it in the source")
        entries = tuple(sorted(files, key=lambda entry: entry.path))
        rows: list[dict[str, object]] = []
        for entry in entries:
            more = {"executable": True} if entry.executable else {}
            rows.append({"file": entry.path, "sha256": entry.sha256, "bytes": entry.bytes, **more})
        rows += [{"link": path, "to": target} for path, target in sorted(listing.links)]
        rows += [{"folder": path} for path in sorted(listing.folders)]
        text = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
        return DatasetManifest(entries, tuple(sorted(listing.links)), tuple(sorted(listing.folders)), text)

    @staticmethod
    def read(text: bytes) -> DatasetManifest:
        """Returns the manifest of a text. Raises ValueError or KeyError for a text that is not a manifest."""
        files, links, folders = [], [], []
        for line in text.splitlines():
            row = json.loads(line)
            if "file" in row:
                files.append(DatasetFile(row["file"], row["sha256"], int(row["bytes"]), bool(row.get("executable"))))
            elif "link" in row:
                links.append((row["link"], row["to"]))
            else:
                folders.append(row["folder"])
        return DatasetManifest(tuple(files), tuple(links), tuple(folders), text)
