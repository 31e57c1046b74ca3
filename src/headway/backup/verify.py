"""Reads a whole backup and checks its parts, after it is written and before it is restored."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.backup.archive import ArchiveReader, Damaged, Header

PARTS = ("state", "database", "about", "secrets", "records")
_DUMP_ENDS = b"-- Dump completed"


@dataclass(frozen=True)
class VerifiedBackup:
    """The figures of a backup that was read back completely, with each part checked."""

    header: Header
    bytes: int
    records: int  # records of Headway's store
    state_files: int  # files in slurmctld's state


def verify_backup(path: Path, key: bytes) -> VerifiedBackup:
    """Reads a whole backup and checks its parts. Raises Damaged."""
    records = files = 0
    seen = []
    with ArchiveReader(path, key) as reader:
        for name, pieces in reader.parts():
            seen.append(name)
            if name == "state":
                files = _check_state(path, pieces)
            elif name == "database":
                _check_dump(path, pieces)
            elif name == "records":
                records = sum(1 for _ in record_rows(pieces))
        if sorted(seen) != sorted(PARTS):
            raise Damaged(f"{path} lacks {', '.join(sorted(set(PARTS) - set(seen)))}", hint="take another backup")
        return VerifiedBackup(reader.header, path.stat().st_size, records, files)


def record_rows(pieces: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (table, values) of the part "records"."""
    unpack, rest = zlib.decompressobj(), b""
    for piece in pieces:
        *lines, rest = (rest + unpack.decompress(piece)).split(b"\n")
        for line in lines:
            table, values = json.loads(line)
            yield table, values


def _check_state(path: Path, pieces: Iterator[bytes]) -> int:
    names = set()
    try:
        with tarfile.open(mode="r|gz", fileobj=io.BufferedReader(Pieces(pieces))) as tar:
            for member in tar:
                names.add(member.name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Damaged(f"{path}: Slurm's state is incomplete: {error}", hint="take another backup") from None
    if "./job_state" not in names:
        raise Damaged(
            f"{path}: Slurm's state has no list of jobs",
            hint="slurmctld writes it with its first job, or five minutes after its start: take another backup then",
        )
    return len(names)


def _check_dump(path: Path, pieces: Iterator[bytes]) -> None:
    unpack, tail = zlib.decompressobj(31), b""
    try:
        for piece in pieces:
            while piece:  # a piece may unpack to a hundred times its size
                tail = (tail + unpack.decompress(piece, 1 << 20))[-200:]
                piece = unpack.unconsumed_tail
    except zlib.error as error:
        raise Damaged(f"{path}: the database dump is incomplete: {error}", hint="take another backup") from None
    if _DUMP_ENDS not in tail or not unpack.eof:
        raise Damaged(f"{path}: the database dump is incomplete", hint="take another backup")


class Pieces(io.RawIOBase):
    """A readable file made of pieces of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
