"""A running command's output, or a log, on one HTTP answer: frames of kind, length and bytes.

Of a command: out, err, and as the last one code (its digits) or error (an ErrorOut as JSON). Of a log: at (digits: the byte
of its file where what follows lies), out (what lies there), said (a line of Headway's, or what has no such place), and as the
last one end or error. An answer without a last one broke off."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

KINDS = ("out", "err", "code", "error", "said", "at", "end")
_HEAD = struct.Struct(">BI")


def frame(kind: str, data: bytes) -> bytes:
    return _HEAD.pack(KINDS.index(kind), len(data)) + data


def frames(pieces: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """(kind, bytes) each; `pieces` may be cut anywhere. Raises ValueError for what is no frame; a last one that is not
    whole is left out."""
    held = b""
    for piece in pieces:
        held += piece
        while len(held) >= _HEAD.size:
            number, length = _HEAD.unpack_from(held)
            if number >= len(KINDS):
                raise ValueError(f"not a frame: kind {number}")
            end = _HEAD.size + length
            if len(held) < end:
                break
            yield KINDS[number], held[_HEAD.size : end]
            held = held[end:]
