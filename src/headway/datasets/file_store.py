"""Stores the files of all dataset versions in one folder. Each content is stored once, and versions are trees of hard links.

    objects/ab/abcd...      a file's content under its SHA-256 (with ".x" appended for an executable file)
    versions/NAME/3/        a version as it is mounted
    manifests/NAME/3.jsonl  what the version must contain
    drafts/                 unfinished work: files, trees and the journal of an import that has not ended

A version appears by one rename. After an interruption the journal names the files that are already stored, and they
are not read again. Everything here blocks, and raises Stopped when the caller sets `FileProgress.stop`."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from headway.datasets.file_progress import FileProgress
from headway.datasets.import_files import import_files
from headway.datasets.import_journal import ImportJournal
from headway.datasets.manifest import DatasetManifest
from headway.datasets.source import DatasetSource
from headway.datasets.store_folders import StoreFolders
from headway.datasets.verify_files import verify_files

_JOURNAL_S = 7 * 86_400.0  # seconds after which an unfinished import is given up


class DatasetFileStore:
    """The file store in the folder `root`."""

    def __init__(self, root: Path) -> None:
        self._folders = StoreFolders(root)

    def folder(self, name: str) -> Path:
        """Returns the folder of a dataset's versions, which is mounted."""
        return self._folders.versions(name)

    def import_files(
        self, name: str, source: DatasetSource, progress: FileProgress, before: int = 0
    ) -> DatasetManifest:
        """Reads a whole source and stores its content; no version has it yet. `before` is the number of a similar
        version, 0 for none. Raises Refused when a file can't be read or stored."""
        return import_files(self._folders, name, source, progress, before)

    def ready(self, name: str) -> None:
        """Creates the folder that is mounted, also for a dataset whose versions were removed."""
        with self._folders.disk_errors():
            self.folder(name).mkdir(parents=True, exist_ok=True)
            self._folders.root.chmod(0o711)
            self._open_to_all(name)

    def _open_to_all(self, name: str) -> None:
        """Sets the mode of the mounted folders so that users of the machines can read them, whatever the server's
        umask is."""
        for folder in (self.folder(name).parent, self.folder(name)):
            folder.chmod(0o755)

    def publish(self, name: str, number: int, manifest: DatasetManifest) -> bool:
        """Creates the version from content that `import_files` stored. Does nothing when the same version exists already.
        Returns False where the number belongs to a version with another content, which stays."""
        target, record = self.folder(name) / str(number), self._folders.manifest(name, number)
        with self._folders.disk_errors():
            if target.exists():
                kept = record.read_bytes() if record.is_file() else b""
                if kept == manifest.text:
                    return True
                if _whole(kept):
                    return False
                self._discard(target)
            record.parent.mkdir(parents=True, exist_ok=True)
            _write(record, manifest.text)
            tree = self._folders.drafts / "tree"
            if tree.exists():
                shutil.rmtree(tree)
            self._plant(tree, manifest)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._open_to_all(name)
            tree.rename(target)
            return True

    def _plant(self, tree: Path, manifest: DatasetManifest) -> None:
        tree.mkdir()
        made = {""}
        for folder in (*manifest.folders, *(path.rpartition("/")[0] for path in _paths(manifest))):
            for above in _up(folder):
                if above not in made:
                    (tree / above).mkdir()
                    made.add(above)
        for file in manifest.files:
            self._link(self._folders.object(file.sha256, executable=file.executable), tree / file.path)
        for path, target in manifest.links:
            (tree / path).symlink_to(target)
        for folder in made:
            (tree / folder).chmod(0o755)

    def _link(self, place: Path, to: Path) -> None:
        try:
            os.link(place, to)
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            # The file has as many links as the file system permits: a new copy replaces it.
            draft = self._folders.drafts / "file"
            shutil.copyfile(place, draft)
            draft.chmod(place.stat().st_mode & 0o777)
            draft.replace(place)
            os.link(place, to)

    def end_import(self, name: str) -> None:
        """Ends an import: its journal is deleted and it can't be continued."""
        self._folders.journal(name).unlink(missing_ok=True)

    def verify(self, name: str, number: int, digest: str, progress: FileProgress) -> list[str]:
        """Reads every file of a version again and returns a line for each fault. Removes the content of a damaged
        file, so that the next import that has it stores it again."""
        return verify_files(self._folders, name, number, digest, progress)

    def remove(self, name: str, number: int) -> int:
        """Removes a version and returns the freed bytes. Does nothing if the version does not exist."""
        with self._folders.disk_errors():
            self._folders.drafts.mkdir(parents=True, exist_ok=True)
            target = self.folder(name) / str(number)
            if target.exists():
                self._discard(target)
            self._folders.manifest(name, number).unlink(missing_ok=True)
            for left in ("gone", "tree"):  # left by an interrupted call; their links keep content in use
                if (self._folders.drafts / left).exists():
                    shutil.rmtree(self._folders.drafts / left)
            return self._sweep()

    def _discard(self, target: Path) -> None:
        gone = self._folders.drafts / "gone"
        if gone.exists():
            shutil.rmtree(gone)
        target.rename(gone)
        shutil.rmtree(gone)

    def _sweep(self) -> int:
        """Deletes content that no version links to and no unfinished import needs. Returns the freed bytes."""
        needed: set[str] = set()
        for journal in self._folders.drafts.glob("*.journal"):
            if time.time() - journal.stat().st_mtime > _JOURNAL_S:
                journal.unlink()
            else:
                needed |= ImportJournal.digests(journal)
        freed = 0
        for place in self._folders.objects.glob("*/*"):
            found = place.stat()
            if found.st_nlink == 1 and place.name.removesuffix(".x") not in needed:
                place.unlink()
                freed += found.st_size
        return freed


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _whole(record: bytes) -> bool:
    """Returns whether the record is a manifest with files."""
    try:
        return bool(DatasetManifest.read(record).files)
    except (ValueError, KeyError, TypeError):
        return False


def _paths(manifest: DatasetManifest) -> Iterator[str]:
    yield from (file.path for file in manifest.files)
    yield from (path for path, _ in manifest.links)


def _up(folder: str) -> list[str]:
    """Returns a folder and those above it: a/b/c -> a, a/b, a/b/c."""
    parts = folder.split("/") if folder else []
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
