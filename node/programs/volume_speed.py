"""Measures how fast file systems are from this machine; prints one JSON line for each folder. Runs as root.

    volume_speed.py '{"paths": ["/scratch"], "mib": 256}'

write: one file in pieces of 4 MiB, until it is on the disk. read: the same file, after the kernel dropped it from the cache.
checkpoint: eight files in parallel, each synced and renamed into place, as trainings save. In MiB per second."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from typing import Any

PIECE = 4 << 20
RANKS = 8
PREFIX = ".headway-bench-"
LEFT_S = 3600.0  # no measurement of one folder takes so long


def write_file(path: str, mib: int) -> None:
    """Writes a file of `mib` MiB and syncs it."""
    data = os.urandom(PIECE)  # not compressible
    with open(path, "wb", buffering=0) as file:
        for _ in range(max(1, (mib << 20) // PIECE)):
            file.write(data)
        os.fsync(file.fileno())


def read_file(path: str) -> None:
    """Reads a file that is not in the page cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(handle, PIECE):
            pass
    finally:
        os.close(handle)


def write_checkpoint(folder: str, mib: int) -> None:
    """Writes RANKS files in parallel, each synced and renamed. Raises OSError."""
    faults: list[OSError] = []

    def rank(number: int) -> None:
        try:
            write_file(f"{folder}/{number}.part", max(4, mib // RANKS))
            os.replace(f"{folder}/{number}.part", f"{folder}/{number}")
        except OSError as error:
            faults.append(error)

    ranks = [threading.Thread(target=rank, args=(number,)) for number in range(RANKS)]
    for child in ranks:
        child.start()
    for child in ranks:
        child.join()
    if faults:
        raise faults[0]


def measure_speed(work: Any, mib: int) -> float:
    """Returns the MiB per second of `work`, which handles `mib` MiB."""
    began = time.monotonic()
    work()
    return round(mib / max(1e-6, time.monotonic() - began), 1)


def tidy(path: str) -> None:
    """Deletes what killed measurements have left in the folder, also those of other machines that share it."""
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                info = entry.stat(follow_symlinks=False)
                if info.st_uid == os.geteuid() and time.time() - info.st_mtime > LEFT_S:
                    shutil.rmtree(entry.path, ignore_errors=True)


def measure(path: str, mib: int) -> dict[str, Any]:
    """Returns the speeds of a folder in MiB per second, or an error."""
    tidy(path)
    try:
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=path)
    except OSError as error:
        return {"path": path, "error": error.strerror}
    try:
        return {
            "path": path,
            "write": measure_speed(lambda: write_file(f"{folder}/one", mib), mib),
            "read": measure_speed(lambda: read_file(f"{folder}/one"), mib),
            "checkpoint": measure_speed(lambda: write_checkpoint(folder, mib), max(4, mib // RANKS) * RANKS),
        }
    except OSError as error:
        return {"path": path, "error": error.strerror}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    request = json.loads(sys.argv[1])
    for path in request["paths"]:
        print(json.dumps(measure(path, request["mib"])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
