"""The mark of a local machine that is being removed: a file next to its boot files. Podman lists its container as stopped while
the files in it are deleted, so this mark alone says that it is no machine any more, also to another server of the state
folder, and to the next one if this one is killed. The server that removes the machine holds a lock on the mark."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_MARK = "removal"
_LOCK_RETRY_S = 0.2


def is_marked(boot: Path) -> bool:
    """Returns whether the machine with this folder of boot files is being removed, or its removal was interrupted."""
    return (boot / _MARK).exists()


def marked_machines(machines: Path) -> list[str]:
    """Returns the names of the marked machines of a cluster, from the folder with the folders of their boot files."""
    return sorted(mark.parent.name for mark in machines.glob(f"*/{_MARK}"))


@asynccontextmanager
async def removal_mark(boot: Path, *, interrupted: bool = False) -> AsyncIterator[bool]:
    """Marks a machine until the block ends without an error. The block gets whether it has to remove the machine: False where
    another removal, which was waited for, has done so. With `interrupted` it gets True only if a removal was begun
    that no server continues, and nothing is waited for."""
    mark = boot / _MARK
    if not interrupted:
        boot.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(mark, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if interrupted else os.O_CREAT), 0o600)
    except FileNotFoundError:
        yield False
        return
    try:
        mine = await _locked(handle, wait=not interrupted) and _is_file(mark, handle)
        yield mine
        if mine:
            mark.unlink(missing_ok=True)
    finally:
        os.close(handle)


async def _locked(handle: int, *, wait: bool) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                return False
            await asyncio.sleep(_LOCK_RETRY_S)
        else:
            return True


def _is_file(path: Path, handle: int) -> bool:
    """Returns whether the path is still the open file. The end of a removal unlinks its mark."""
    try:
        return path.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False
