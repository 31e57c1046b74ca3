"""A folder on the server's machine, as files of a dataset."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from headway.datasets.source import Item, Listing, pieces
from headway.errors import Refused

_NAMED = 5  # faults of a folder that a message lists; it counts the rest


class FolderSource:
    """A folder on the server's machine. No link is followed: a user who may write there must not have files read
    that they can't read themselves. Implements datasets.source.DatasetSource."""

    def __init__(self, path: Path) -> None:
        """Opens the folder. Raises Refused when there is no such folder."""
        self._path = path
        try:
            self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Refused(
                f"{path}: {error.strerror}", hint="give the absolute path of a folder on the server's machine"
            ) from None
        self._inside: tuple[str, int] | None = None  # (path, open handle) of the folder last read from

    @property
    def real(self) -> Path:
        """Returns the path of the opened folder, wherever its name leads by now."""
        return Path(f"/proc/self/fd/{self._root}").readlink()

    def close(self) -> None:
        """Closes the open folders."""
        if self._inside is not None:
            os.close(self._inside[1])
            self._inside = None
        os.close(self._root)

    def listing(self) -> Listing:
        """Returns the files, links and empty folders. Raises Refused when one can't be read or a dataset can't
        contain it."""
        files: list[Item] = []
        links: list[tuple[str, str]] = []
        folders: list[str] = []
        faults: list[str] = []
        unvisited: set[str] = set()  # folders that were found and not yet walked
        closed: dict[str, str] = {}  # name of a folder that could not be opened -> why

        def note(error: OSError) -> None:
            closed[str(error.filename)] = error.strerror or str(error)

        for base, below, names, handle in os.fwalk(".", onerror=note, dir_fd=self._root, follow_symlinks=False):
            inside = "" if base == "." else base.removeprefix("./") + "/"
            unvisited.discard(inside[:-1])
            if inside and not below and not names:
                folders.append(inside[:-1])
            try:
                linked = {folder for folder in below if _is_link(folder, handle)}
                unvisited |= {inside + folder for folder in below if folder not in linked}
                for name in [*names, *sorted(linked)]:
                    fault = self._add_entry(inside + name, name, handle, files, links)
                    faults += [fault] if fault else []
            except OSError as error:
                raise Refused(
                    f"{self._path}/{inside}{error.filename}: {error.strerror}",
                    hint="add it when no program writes there",
                ) from error
        if unvisited:  # a version without them would be incomplete
            raise self._not_whole(sorted(unvisited), closed)
        for path in folders:
            faults += [f"{path!r} is not a name in UTF-8"] if _odd(path) else []
        if faults:
            more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
            raise Refused(
                f"{self._path} has entries that a dataset can't have: {'; '.join(faults[:_NAMED])}{more}",
                hint="leave only files, folders and links that stay inside it",
            )
        return Listing(tuple(sorted(files, key=lambda item: item.path)), tuple(sorted(links)), tuple(sorted(folders)))

    def _not_whole(self, folders: Sequence[str], why: Mapping[str, str]) -> Refused:
        rows = [
            f"{path}: {why.get(posixpath.basename(path), 'it was replaced during the copy')}"
            for path in folders[:_NAMED]
        ]
        more = f"; and {len(folders) - _NAMED} more" if len(folders) > _NAMED else ""
        return Refused(
            f"{self._path} can't be read completely: {'; '.join(rows)}{more}",
            hint="let the server's user read every folder in it, stop programs that write there, and add it again",
        )

    @staticmethod
    def _add_entry(path: str, name: str, handle: int, files: list[Item], links: list[tuple[str, str]]) -> str:
        """Adds the file or link to its list. Returns why it can't be part of a dataset, or ""."""
        if _odd(path):
            return f"{path!r} is not a name in UTF-8"
        found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            files.append(Item(path, found.st_size, bool(found.st_mode & 0o111), _stamp(found)))
            return ""
        if not stat.S_ISLNK(found.st_mode):
            return f"{path} is not a file"
        target = os.readlink(name, dir_fd=handle)
        end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if target.startswith("/") or end == ".." or end.startswith("../"):
            return f"{path} links to {target}, outside the dataset"
        links.append((path, target))
        return ""

    def read(self, item: Item) -> Iterator[bytes]:
        """Yields the content of a file. Raises Refused when it has changed since it was listed or changes
        meanwhile."""
        base, _, name = item.path.rpartition("/")
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self._in(base))
        except OSError as error:
            raise Refused(
                f"{self._path}/{item.path}: {error.strerror}", hint="add it when no program writes there"
            ) from None
        try:
            if _stamp(os.fstat(handle)) != item.stamp:
                raise self._changed(item)
            yield from pieces(handle)
            if _stamp(os.fstat(handle)) != item.stamp:
                raise self._changed(item)
        finally:
            os.close(handle)

    def _changed(self, item: Item) -> Refused:
        return Refused(
            f"{self._path}/{item.path} was changed while it was read", hint="add it again when no program writes there"
        )

    def _in(self, base: str) -> int:
        """Returns a handle on a folder below the root, opened without following links."""
        if not base:
            return self._root
        if self._inside is not None and self._inside[0] == base:
            return self._inside[1]
        handle = os.dup(self._root)
        for part in base.split("/"):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                below = os.open(part, flags, dir_fd=handle)
            finally:
                os.close(handle)
            handle = below
        if self._inside is not None:
            os.close(self._inside[1])
        self._inside = (base, handle)
        return handle


def _is_link(name: str, handle: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode)


def _odd(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return True
    return False


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ino} {found.st_dev}"
