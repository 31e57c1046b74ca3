"""Mounts on the host that are visible in running local machines: one shared mount per cluster, with datasets below it.

mount(2) is called directly on open folders, so that no path can be replaced by a symbolic link in between."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from headway.domain.storage.folders import Dataset
from headway.errors import Refused

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 32, 4096
_MS_PRIVATE, _MS_SHARED = 1 << 18, 1 << 20
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, flags: int) -> None:
    if _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        hint = "local machines need root rights" if number == errno.EPERM else ""
        raise Refused(f"can't mount {source} on {target}: {os.strerror(number)}", hint=hint)


def _umount(target: str) -> None:
    """Unmounts the top mount at `target`, if there is one. The unmount is lazy: open files stay usable until they are
    closed."""
    if _libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOENT):
            raise Refused(f"can't unmount {target}: {os.strerror(number)}")


def read_mounts() -> dict[str, tuple[str, bool]]:
    """Returns mount point -> (root of the mount within its file system, read-only?) of the topmost mount at each point."""
    return {point: (root, read_only) for point, root, read_only, _ in _table()}


def _table() -> Iterator[tuple[str, str, bool, bool]]:
    """Yields (mount point, root, read-only, shared) of every mount, in mount order."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, _ = line.partition(" - ")
        fields = left.split(" ")
        root, point = (re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), text) for text in fields[3:5])
        shared = any(tag.startswith("shared:") for tag in fields[6:])
        yield point, root, "ro" in fields[5].split(","), shared


def make_shared_mount(folder: Path) -> None:
    """Makes `folder` a mount of its own whose later submounts propagate into machines. Idempotent.

    It is first detached from its parent's peer group; otherwise every dataset would appear a second time below the
    parent."""
    here = [shared for point, _, _, shared in _table() if point == str(folder)]
    if here and here[-1]:
        return
    if not here:
        _mount(str(folder), str(folder), _MS_BIND)
    _mount("none", str(folder), _MS_PRIVATE)
    _mount("none", str(folder), _MS_SHARED)


def mounts_below(folder: Path) -> list[str]:
    """Returns the mount points at or below the folder, in mount order."""
    return [point for point, *_ in _table() if point == str(folder) or point.startswith(f"{folder}/")]


def remove_shared_mount(folder: Path) -> None:
    """Removes the mounts below `folder`, then its own."""
    for point in reversed(mounts_below(folder)):
        _umount(point)


@contextlib.contextmanager
def _open(path: str, *, follow: bool = False, inside: int | None = None) -> Iterator[int]:
    """Yields a handle on a folder (`inside`: `path` is a name within this open folder). The handle stays valid if the
    folder is renamed."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags, dir_fd=inside)
    try:
        yield handle
    finally:
        os.close(handle)


def _at(handle: int) -> str:
    return f"/proc/self/fd/{handle}"


@contextlib.contextmanager
def _places(shared: Path) -> Iterator[int]:
    """Yields a handle on shared/datasets. Root in a machine can write there, so no symbolic link is followed."""
    base = shared / "datasets"
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o755)
    try:
        with _open(str(base)) as handle:
            yield handle
    except NotADirectoryError as error:
        raise Refused(f"{base} is not a folder", hint="remove it, then apply again") from error


def attach_datasets(shared: Path, datasets: Sequence[Dataset]) -> None:
    """Makes exactly these datasets appear at shared/datasets/NAME.

    Raises Refused for a source that is no folder or is reached through a symbolic link, and for an invalid name. The
    other datasets are attached anyway."""
    by_name = {dataset.name: dataset for dataset in datasets}
    faults = []
    with _places(shared) as places:
        for name in set(attached_datasets(shared)) - by_name.keys():
            _umount(f"{_at(places)}/{name}")
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=places)
        for dataset in by_name.values():
            try:
                _attach_one(shared, places, dataset)
            except Refused as fault:
                faults.append(fault.message)
    if faults:
        raise Refused("; ".join(faults), hint="correct storage.datasets and apply again")


def attached_datasets(shared: Path) -> tuple[str, ...]:
    """Returns the names of the datasets that are mounted now."""
    base = f"{shared / 'datasets'}/"
    return tuple(sorted({point[len(base) :] for point, *_ in _table() if point.startswith(base)}))


def _attach_one(shared: Path, places: int, dataset: Dataset) -> None:
    if not _NAME.fullmatch(dataset.name):
        raise Refused(f"{dataset.name!r} is not a valid dataset name")
    target = shared / "datasets" / dataset.name
    if str(target) in read_mounts():
        if _same(dataset, target):
            return
        _umount(f"{_at(places)}/{dataset.name}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(dataset.name, mode=0o755, dir_fd=places)
    with _source(dataset) as source:
        try:
            with _open(dataset.name, inside=places) as place:
                _bind(source, place, shared.parent / ".stage", read_only=dataset.read_only)
        except NotADirectoryError as error:
            raise Refused(f"dataset {dataset.name}: {target} exists and is not a folder") from error


@contextlib.contextmanager
def _source(dataset: Dataset) -> Iterator[int]:
    try:
        with _open(dataset.source, follow=True) as handle:
            real = str(Path(_at(handle)).readlink())
            if real != dataset.source.rstrip("/"):
                raise Refused(f"dataset {dataset.name}: {dataset.source} is a link to {real}; give that folder")
            yield handle
    except FileNotFoundError as error:
        raise Refused(f"dataset {dataset.name}: {dataset.source} does not exist") from error
    except NotADirectoryError as error:
        raise Refused(f"dataset {dataset.name}: {dataset.source} is not a folder") from error


def _bind(source: int, place: int, stage: Path, *, read_only: bool) -> None:
    """Mounts one open folder on another. Read-only is set on a private mount first, which is then mounted in its place,
    because a later change of the flag would not propagate into machines."""
    stage.mkdir(mode=0o700, exist_ok=True)
    extra = _MS_NOSUID | _MS_NODEV | (_MS_RDONLY if read_only else 0)
    _mount(_at(source), str(stage), _MS_BIND)
    try:
        _mount("none", str(stage), _MS_PRIVATE)
        _mount("none", str(stage), _MS_REMOUNT | _MS_BIND | extra)
        with _open(str(stage)) as staged:
            _mount(_at(staged), _at(place), _MS_BIND)
    finally:
        _umount(str(stage))


def _same(dataset: Dataset, target: Path) -> bool:
    """Returns whether the dataset's folder is mounted at `target`, with the wanted read-only flag."""
    there, source = target.stat(), Path(dataset.source).stat()
    same = (there.st_dev, there.st_ino) == (source.st_dev, source.st_ino)
    return same and read_mounts()[str(target)][1] == dataset.read_only
