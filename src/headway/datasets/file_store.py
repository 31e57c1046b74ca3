"""Stores the files of all dataset versions in one folder. Each content is stored once, and versions are trees of hard links.

    objects/ab/abcd...      a file's content under its SHA-256 (with ".x" appended for an executable file)
    versions/NAME/3/        a version as it is mounted
    manifests/NAME/3.jsonl  what the version must contain
    drafts/                 unfinished work: files, trees and the journal of an addition that has not ended

A version appears by one rename. After an interruption the journal names the files that are already stored, and they
are not read again. Everything here blocks, and raises Stopped when the caller sets `FileProgress.stop`."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from headway.datasets.manifest import DatasetFile, DatasetManifest
from headway.datasets.source import DatasetSource, Item, pieces
from headway.errors import HeadwayError, Refused

_JOURNAL_S = 7 * 86_400.0  # seconds after which an unfinished addition is given up
_NAMED = 20  # damaged files that a message lists; it counts the rest
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Stopped(HeadwayError):
    """The work was stopped before it was finished; it can be continued."""


@dataclass
class FileProgress:
    """The progress of the work, read from other threads; setting `stop` ends the work."""

    files: int = 0
    bytes: int = 0
    of_files: int = 0
    of_bytes: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def step(self, count: int) -> None:
        """Adds bytes. Raises Stopped when `stop` is set."""
        self.bytes += count
        if self.stop.is_set():
            raise Stopped("it was stopped")


class DatasetFileStore:
    """The file store in the folder `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._objects = root / "objects"
        self._drafts = root / "drafts"

    def folder(self, name: str) -> Path:
        """Returns the folder of a dataset's versions, which is mounted."""
        return self._root / "versions" / name

    def _manifest(self, name: str, number: int) -> Path:
        return self._root / "manifests" / name / f"{number}.jsonl"

    # --- adding

    def bring(self, name: str, source: DatasetSource, progress: FileProgress, before: int = 0) -> DatasetManifest:
        """Reads a whole source and stores its content; no version has it yet. `before` is the number of a similar
        version, 0 for none. Raises Refused when a file can't be read or stored."""
        with self._disk_errors():
            listing = source.listing()
        progress.of_files, progress.of_bytes = len(listing.files), listing.size
        if not listing.files:
            raise Refused("the dataset has no file", hint="add at least one file")
        with self._disk_errors():
            self._objects.mkdir(parents=True, exist_ok=True)
            self._drafts.mkdir(exist_ok=True)
            self._root.chmod(0o711)
        known = self._known(name, before)
        entries = []
        with self._disk_errors(), Journal(self._drafts / f"{name}.journal") as journal:
            for item in listing.files:
                entries.append(self._bring_one(item, source, journal, known, progress))
                progress.files += 1
            os.sync()
        return DatasetManifest.of(entries, listing)

    def _known(self, name: str, number: int) -> dict[str, int]:
        """Returns path -> size of a version's files. A file with the same path and size is read first, and written
        only if its content differs."""
        try:
            return {
                file.path: file.bytes for file in DatasetManifest.read(self._manifest(name, number).read_bytes()).files
            }
        except (OSError, ValueError, KeyError):
            return {}

    def _bring_one(
        self, item: Item, source: DatasetSource, journal: Journal, known: dict[str, int], progress: FileProgress
    ) -> DatasetFile:
        digest = journal.digest(item)
        if digest and self._has(digest, item):
            progress.step(item.bytes)
            return DatasetFile(item.path, digest, item.bytes, item.executable)
        if known.get(item.path) == item.bytes:
            digest = self._copy(item, source, None, progress)
            if self._has(digest, item):
                return DatasetFile(item.path, digest, item.bytes, item.executable)
            progress.bytes -= item.bytes
        draft = self._drafts / "file"
        draft.unlink(missing_ok=True)
        with draft.open("xb") as file:
            digest = self._copy(item, source, file, progress)
            os.fchmod(file.fileno(), 0o555 if item.executable else 0o444)
        if self._has(digest, item):
            draft.unlink()
        else:
            place = self._object(digest, executable=item.executable)
            place.parent.mkdir(exist_ok=True)
            draft.replace(place)
        journal.note(item, digest)
        return DatasetFile(item.path, digest, item.bytes, item.executable)

    @staticmethod
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

    def _object(self, digest: str, *, executable: bool) -> Path:
        return self._objects / digest[:2] / (digest + ".x" * executable)

    def _has(self, digest: str, item: Item) -> bool:
        try:
            return self._object(digest, executable=item.executable).stat().st_size == item.bytes
        except FileNotFoundError:
            return False

    def ready(self, name: str) -> None:
        """Creates the folder that is mounted, also for a dataset whose versions were removed."""
        with self._disk_errors():
            self.folder(name).mkdir(parents=True, exist_ok=True)
            self._root.chmod(0o711)
            self._open_to_all(name)

    def _open_to_all(self, name: str) -> None:
        """Sets the mode of the mounted folders so that users of the machines can read them, whatever the server's
        umask is."""
        for folder in (self.folder(name).parent, self.folder(name)):
            folder.chmod(0o755)

    def publish(self, name: str, number: int, manifest: DatasetManifest) -> bool:
        """Creates the version from content that `bring` stored. Does nothing when the same version exists already.
        Returns False where the number belongs to a version with another content, which stays."""
        target, record = self.folder(name) / str(number), self._manifest(name, number)
        with self._disk_errors():
            if target.exists():
                kept = record.read_bytes() if record.is_file() else b""
                if kept == manifest.text:
                    return True
                if _whole(kept):
                    return False
                self._discard(target)
            record.parent.mkdir(parents=True, exist_ok=True)
            _write(record, manifest.text)
            tree = self._drafts / "tree"
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
            self._link(self._object(file.sha256, executable=file.executable), tree / file.path)
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
            draft = self._drafts / "file"
            shutil.copyfile(place, draft)
            draft.chmod(place.stat().st_mode & 0o777)
            draft.replace(place)
            os.link(place, to)

    def done(self, name: str) -> None:
        """Ends an addition: its journal is deleted and it can't be continued."""
        (self._drafts / f"{name}.journal").unlink(missing_ok=True)

    # --- existing versions

    def verify(self, name: str, number: int, digest: str, progress: FileProgress) -> list[str]:
        """Reads every file of a version again and returns a line for each fault. Removes the content of a damaged
        file, so that the next addition that has it stores it again."""
        tree = self.folder(name) / str(number)
        try:
            manifest = DatasetManifest.read(self._manifest(name, number).read_bytes())
        except (OSError, ValueError, KeyError) as error:
            return [f"its manifest can't be read: {error}"]
        if manifest.digest != digest:
            return ["its manifest differs from the recorded one"]
        progress.of_files, progress.of_bytes = len(manifest.files), manifest.size
        wrong = []
        for file in manifest.files:
            fault = _fault_of(tree / file.path, file, progress)
            if fault:
                wrong.append(f"{file.path} {fault}")
                self._drop(tree / file.path, file)
            progress.files += 1
        expected = {file.path for file in manifest.files} | {path for path, _ in manifest.links}
        wrong += [
            f"{path} {_link_fault(tree / path, to)}" for path, to in manifest.links if _link_fault(tree / path, to)
        ]
        wrong += [f"{path} does not belong to it" for path in sorted(_there(tree) - expected)]
        return wrong

    def _drop(self, place: Path, entry: DatasetFile) -> None:
        """Removes the damaged content, so that additions do not use it."""
        kept = self._object(entry.sha256, executable=entry.executable)
        with contextlib.suppress(OSError):
            if kept.samefile(place):
                kept.unlink()

    def remove(self, name: str, number: int) -> int:
        """Removes a version and returns the freed bytes. Does nothing if the version does not exist."""
        with self._disk_errors():
            self._drafts.mkdir(parents=True, exist_ok=True)
            target = self.folder(name) / str(number)
            if target.exists():
                self._discard(target)
            self._manifest(name, number).unlink(missing_ok=True)
            for left in ("gone", "tree"):  # left by an interrupted call; their links keep content in use
                if (self._drafts / left).exists():
                    shutil.rmtree(self._drafts / left)
            return self._sweep()

    def _discard(self, target: Path) -> None:
        gone = self._drafts / "gone"
        if gone.exists():
            shutil.rmtree(gone)
        target.rename(gone)
        shutil.rmtree(gone)

    def _sweep(self) -> int:
        """Deletes content that no version links to and no unfinished addition needs. Returns the freed bytes."""
        needed: set[str] = set()
        for journal in self._drafts.glob("*.journal"):
            if time.time() - journal.stat().st_mtime > _JOURNAL_S:
                journal.unlink()
            else:
                needed |= Journal.digests(journal)
        freed = 0
        for place in self._objects.glob("*/*"):
            found = place.stat()
            if found.st_nlink == 1 and place.name.removesuffix(".x") not in needed:
                place.unlink()
                freed += found.st_size
        return freed

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "free space there, then repeat: it continues where it stopped" if full else "headway server logs"
            where = error.filename or self._root
            raise Refused(f"{where}: {error.strerror or error}", hint=hint) from error


class Journal:
    """The files that an addition has stored so far, one per line. A journal from before the last boot is ignored:
    the data that it names may not have reached the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[str, str]] = {}

    def __enter__(self) -> Journal:
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
        return {row[2] for row in Journal._rows(path) if len(row) == 3}


def damage_text(damage: list[str]) -> str:
    """Returns faults as indented lines for a message."""
    more = len(damage) - _NAMED
    return "\n".join([f"  {fault}" for fault in damage[:_NAMED]] + ([f"  and {more} more"] if more > 0 else []))


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


def _fault_of(path: Path, entry: DatasetFile, progress: FileProgress) -> str:
    """Returns what is wrong with a file of a version, or ""."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"can't be opened: {error.strerror}"
    told_of = hashlib.sha256()
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)  # to read from the disk, not the page cache
        for piece in pieces(handle):
            told_of.update(piece)
            progress.step(len(piece))
        executable = bool(os.fstat(handle).st_mode & 0o111)
    except OSError as error:
        return f"can't be read: {error.strerror}"
    finally:
        os.close(handle)
    if told_of.hexdigest() != entry.sha256:
        return "has different content"
    return "" if executable == entry.executable else "has a different mode"


def _link_fault(path: Path, to: str) -> str:
    try:
        return "" if str(path.readlink()) == to else "has a different target"
    except OSError:
        return "is missing"


def _there(tree: Path) -> set[str]:
    found = set()
    for base, below, names in os.walk(tree):
        inside = Path(base).relative_to(tree)
        links = [folder_name for folder_name in below if (Path(base) / folder_name).is_symlink()]
        found |= {str(inside / name) for name in (*names, *links)}
    return found
