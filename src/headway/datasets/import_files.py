"""Reads the files of a source into the file store, and continues an import that was interrupted."""

from __future__ import annotations

import hashlib
import os
from typing import IO

from headway.datasets.file_progress import FileProgress
from headway.datasets.import_journal import ImportJournal
from headway.datasets.manifest import DatasetFile, DatasetManifest
from headway.datasets.source import DatasetSource, Item
from headway.datasets.store_folders import StoreFolders
from headway.errors import Refused


def import_files(
    folders: StoreFolders, name: str, source: DatasetSource, progress: FileProgress, before: int = 0
) -> DatasetManifest:
    """Reads a whole source and stores its content; no version has it yet. `before` is the number of a similar
    version, 0 for none. Raises Refused when a file can't be read or stored."""
    with folders.disk_errors():
        listing = source.listing()
    progress.of_files, progress.of_bytes = len(listing.files), listing.size
    if not listing.files:
        raise Refused("the dataset has no file", hint="add at least one file")
    with folders.disk_errors():
        folders.objects.mkdir(parents=True, exist_ok=True)
        folders.drafts.mkdir(exist_ok=True)
        folders.root.chmod(0o711)
    known = _known(folders, name, before)
    entries = []
    with folders.disk_errors(), ImportJournal(folders.journal(name)) as journal:
        for item in listing.files:
            entries.append(_import_file(folders, item, source, journal, known, progress))
            progress.files += 1
        os.sync()
    return DatasetManifest.of(entries, listing)


def _known(folders: StoreFolders, name: str, number: int) -> dict[str, int]:
    """Returns path -> size of a version's files. A file with the same path and size is read first, and written
    only if its content differs."""
    try:
        return {
            file.path: file.bytes for file in DatasetManifest.read(folders.manifest(name, number).read_bytes()).files
        }
    except (OSError, ValueError, KeyError):
        return {}


def _import_file(
    folders: StoreFolders,
    item: Item,
    source: DatasetSource,
    journal: ImportJournal,
    known: dict[str, int],
    progress: FileProgress,
) -> DatasetFile:
    digest = journal.digest(item)
    if digest and folders.has(digest, item):
        progress.step(item.bytes)
        return DatasetFile(item.path, digest, item.bytes, item.executable)
    if known.get(item.path) == item.bytes:
        digest = _copy(item, source, None, progress)
        if folders.has(digest, item):
            return DatasetFile(item.path, digest, item.bytes, item.executable)
        progress.bytes -= item.bytes
    draft = folders.drafts / "file"
    draft.unlink(missing_ok=True)
    with draft.open("xb") as file:
        digest = _copy(item, source, file, progress)
        os.fchmod(file.fileno(), 0o555 if item.executable else 0o444)
    if folders.has(digest, item):
        draft.unlink()
    else:
        place = folders.object(digest, executable=item.executable)
        place.parent.mkdir(exist_ok=True)
        draft.replace(place)
    journal.note(item, digest)
    return DatasetFile(item.path, digest, item.bytes, item.executable)


def _copy(item: Item, source: DatasetSource, to: IO[bytes] | None, progress: FileProgress) -> str:
    digest, count = hashlib.sha256(), 0
    for piece in source.read(item):
        digest.update(piece)
        if to is not None:
            to.write(piece)
        count += len(piece)
        progress.step(len(piece))
    if count != item.bytes:
        raise Refused(
            f"{item.path}: {count} bytes arrived instead of {item.bytes}",
            hint="add it again when no program writes there",
        )
    return digest.hexdigest()
