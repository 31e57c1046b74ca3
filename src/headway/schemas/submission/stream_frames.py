"""Frames (kind, length, bytes) that carry a command's output or a log in one HTTP response.

Frames of a command: `out`, `err`, and as the last one `code` (its digits) or `error` (an ErrorOut as JSON). Frames
of a log: `at` (digits: byte offset in the file of the following `out`), `out` (log text), `said` (a line from
Headway, or text without an offset), and as the last one `end` or `error`. A response without a last frame was cut
off."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

KINDS = ("out", "err", "code", "error", "said", "at", "end")
_HEAD = struct.Struct(">BI")


def frame(kind: str, data: bytes) -> bytes:
    """Returns one encoded frame: a byte for the kind, four bytes for the length (big endian), and the data."""
    return _HEAD.pack(KINDS.index(kind), len(data)) + data


def frames(pieces: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yields (kind, data) of each frame. `pieces` may be cut anywhere. Raises ValueError for an unknown kind. An
    incomplete last frame is left out."""
    buffer = b""
    for piece in pieces:
        buffer += piece
        while len(buffer) >= _HEAD.size:
            number, length = _HEAD.unpack_from(buffer)
            if number >= len(KINDS):
                raise ValueError(f"not a frame: kind {number}")
            end = _HEAD.size + length
            if len(buffer) < end:
                break
            yield KINDS[number], buffer[_HEAD.size : end]
            buffer = buffer[end:]
