"""Keeps the files of software environments in the page cache of an idle node, so that a job imports its packages without
waiting for a disk. A spare that takes over from a dead node has often been idle for days."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from agent.environments.local_copies import FOLDER, Version, newest_versions
from agent.metrics.host import read_text

PYTORCH = "pytorch"  # the environment that every cluster has
IMAGE_PACKAGES = "/usr/lib/python3/dist-packages"
_LIBRARIES = re.compile(
    r"lib(torch|c10|shm|gloo|XNNPACK|openblas|onnx|protobuf|fmt|sleef|dnnl|tensorpipe|uv|gomp|mpi|open-pal|uc[mpst]|z3)[\w.+-]*\.so[\d.]*"
)
_READ_AT_IMPORT = (".py", ".pyc", ".json", ".yaml")
MOST_SHARE = 0.25  # of the memory that is available
_PIECE = 128 * 1024  # bytes; the kernel reads no more at one request than the disk's read-ahead


def available_bytes(proc: str = "/proc") -> int:
    """Returns the memory that programs can still get, 0 if it is not known."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", read_text(f"{proc}/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def folders(versions: Iterable[Version], folder: str = FOLDER) -> list[str]:
    """Returns the folders with packages of the newest version of each environment: pytorch first, then the one published
    last. A version of the node image has no packages of its own, but uses those of the machine."""
    order = sorted(newest_versions(versions), key=lambda version: version.name != PYTORCH)
    return [f"{folder}/{version.place}/lib" if version.bytes else IMAGE_PACKAGES for version in order]


def files(folder: str) -> Iterator[str]:
    """Yields the files below the folder that Python reads when it imports packages, and PyTorch's libraries of the
    machine for the image's packages."""
    for base, below, names in os.walk(folder):
        below.sort()
        for name in names:
            if name.endswith(_READ_AT_IMPORT) or ".so" in name:
                yield os.path.join(base, name)
    if folder == IMAGE_PACKAGES:
        for base in sorted(f"/usr/lib/{name}" for name in os.listdir("/usr/lib") if name.endswith("-linux-gnu")):
            yield from (f"{base}/{name}" for name in sorted(os.listdir(base)) if _LIBRARIES.fullmatch(name))


def read_into_memory(paths: Iterable[str], most_bytes: int) -> int:
    """Asks the kernel to read the files, in order, until `most_bytes` are reached. What is in memory already costs
    nothing. Returns the bytes of these files."""
    total = 0
    for path in paths:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME)
        except OSError:  # a link, or it is gone
            continue
        try:
            size = os.fstat(handle).st_size
            if total + size > most_bytes:
                return total
            for start in range(0, size, _PIECE):
                os.posix_fadvise(handle, start, _PIECE, os.POSIX_FADV_WILLNEED)
            total += size
        finally:
            os.close(handle)
    return total
