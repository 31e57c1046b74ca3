"""Files that only their owner may read: they appear whole or not at all, with mode 600 from their first byte."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_private(file: Path, content: str | bytes) -> None:
    """Writes the file, or replaces it. Raises OSError."""
    new = _write_beside(file, content)
    try:
        new.replace(file)
    except OSError:
        new.unlink()
        raise


def create_private(file: Path, content: str | bytes) -> None:
    """Writes the file, to the disk, unless it exists or another process is faster. Raises OSError."""
    new = _write_beside(file, content, sync=True)
    try:
        os.link(new, file)
    except FileExistsError:
        pass
    finally:
        new.unlink()


def _write_beside(file: Path, content: str | bytes, *, sync: bool = False) -> Path:
    """Returns a new file in the same folder with this content."""
    new = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content.encode() if isinstance(content, str) else content)
            if sync:
                out.flush()
                os.fsync(out.fileno())
    except OSError:
        new.unlink()
        raise
    return new
