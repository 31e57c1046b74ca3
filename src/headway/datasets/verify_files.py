"""Reads the files of a dataset version again and compares them with its manifest."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from headway.datasets.file_progress import FileProgress
from headway.datasets.manifest import DatasetFile, DatasetManifest
from headway.datasets.source import pieces
from headway.datasets.store_folders import StoreFolders

_NAMED = 20  # damaged files that a message lists; it counts the rest


def verify_files(folders: StoreFolders, name: str, number: int, digest: str, progress: FileProgress) -> list[str]:
    """Reads every file of a version again and returns a line for each fault. Removes the content of a damaged
    file, so that the next import that has it stores it again."""
    tree = folders.versions(name) / str(number)
    try:
        manifest = DatasetManifest.read(folders.manifest(name, number).read_bytes())
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
            _drop(folders, tree / file.path, file)
        progress.files += 1
    expected = {file.path for file in manifest.files} | {path for path, _ in manifest.links}
    wrong += [f"{path} {_link_fault(tree / path, to)}" for path, to in manifest.links if _link_fault(tree / path, to)]
    wrong += [f"{path} does not belong to it" for path in sorted(_there(tree) - expected)]
    return wrong


def _drop(folders: StoreFolders, place: Path, entry: DatasetFile) -> None:
    """Removes the damaged content, so that imports do not use it."""
    kept = folders.object(entry.sha256, executable=entry.executable)
    with contextlib.suppress(OSError):
        if kept.samefile(place):
            kept.unlink()


def damage_text(damage: list[str]) -> str:
    """Returns faults as indented lines for a message."""
    more = len(damage) - _NAMED
    return "\n".join([f"  {fault}" for fault in damage[:_NAMED]] + ([f"  and {more} more"] if more > 0 else []))


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
