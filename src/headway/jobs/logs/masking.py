"""Masks the values of secrets in logs. Pure.

A value is replaced by as many asterisks as it has bytes, so that offsets in the log stay those of its file."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing

from headway.domain.access.job_secret_limits import MIN_BYTES
from headway.jobs.logs.follow import LogPiece, log_piece
from headway.schemas.jobs import LogFoundOut, LogPartOut

STAR = b"*"
LEAST_CUT = 4  # bytes: a shorter piece of a value at the end of a part is not masked, because it occurs by chance


class LogMask:
    """The values to mask. Each line of a value is masked by itself, because logs are read by lines; lines with less than
    MIN_BYTES bytes are not."""

    def __init__(self, values: Iterable[str]) -> None:
        lines = {line.strip().encode() for value in values for line in (value, *value.splitlines())}
        # The longest first: a value may contain another one.
        self._values = sorted((line for line in lines if len(line) >= MIN_BYTES), key=lambda line: (-len(line), line))
        self._pattern = re.compile(b"|".join(map(re.escape, self._values))) if self._values else None

    @property
    def longest(self) -> int:
        """Returns the length of the longest value in bytes; 0 if there is none."""
        return len(self._values[0]) if self._values else 0

    def mask(self, data: bytes) -> bytes:
        """Returns the data with asterisks for all values, of the same length."""
        return self._pattern.sub(lambda found: STAR * len(found[0]), data) if self._pattern else data

    def split_before_value(self, data: bytes) -> int:
        """Returns how many bytes of the data can be shown: no value may begin in them and end in later data."""
        cut = len(data) - max((overlap(data, value) for value in self._values), default=0)
        for found in self._pattern.finditer(data) if self._pattern else ():
            if found.start() < cut < found.end():
                return found.start()
        return cut

    def mask_part(self, part: LogPartOut) -> LogPartOut:
        """Returns the part of a log with values masked, also those that begin before it or end after it."""
        if not self._values:
            return part
        data = self.mask(part.text.encode())
        if begin := max((overlap(data[::-1], value[::-1]) for value in self._values), default=0):
            data = _stars(begin) + data[begin:] if begin >= LEAST_CUT else data
        if end := max((overlap(data, value) for value in self._values), default=0):
            data = data[: len(data) - end] + _stars(end) if end >= LEAST_CUT else data
        return part.model_copy(update={"text": data.decode(errors="replace")})

    def mask_found(self, found: LogFoundOut, searched: str) -> LogFoundOut:
        """Returns the found lines with values masked, without those that only have the searched text in a value: a search
        must not tell what a value contains."""
        lines = []
        for line in found.found:
            text = self.mask_part(LogPartOut(text=line.text, start=0, end=0, size=0)).text
            if text == line.text or searched.lower() in text.lower():
                lines.append(line.model_copy(update={"text": text}))
        return found.model_copy(update={"found": lines})


def _stars(size: int) -> bytes:
    return STAR * size


def overlap(data: bytes, value: bytes) -> int:
    """Returns the length of the longest beginning of `value`, not all of it, that `data` ends with.

    Knuth, Morris and Pratt's search of `value` in the end of the data, in linear time."""
    end = data[max(0, len(data) - len(value) + 1) :]
    shorter: list[int] = [0, 0]  # for the first N bytes of the value: the longest shorter beginning that they end with
    at = size = 0  # the bytes before `at` end with the first `size` bytes of the value
    while at < len(end):
        if size == 0 and (at := end.find(value[:1], at)) < 0:
            return 0
        if end[at] == value[size]:
            at, size = at + 1, size + 1
            continue
        while len(shorter) <= size:
            shorter.append(_next_border(value, shorter))
        size = shorter[size]
    return size


def _next_border(value: bytes, borders: list[int]) -> int:
    """Returns the length of the longest beginning of `value` that its first len(borders) bytes end with, not all of them;
    `borders` has those of all shorter pieces."""
    last = value[len(borders) - 1]
    size = borders[-1]
    while size and value[size] != last:
        size = borders[size]
    return size + (value[size] == last)


async def mask_stream(pieces: AsyncIterator[bytes], mask: LogMask, start: int = 0) -> AsyncGenerator[bytes, None]:
    """Yields the pieces of a log with values masked, also where a value is in two pieces: the end of a piece is held back
    while a value may begin there. Other pieces than LogPieces, lines by Headway or of several logs, are whole lines. Bytes
    before `start` are read to find a value that begins there, and not yielded."""
    held, end = log_piece(b"", 0), -1
    async with aclosing(pieces) as source:  # type: ignore[type-var]
        async for piece in source:
            if not isinstance(piece, LogPiece):
                yield mask.mask(piece)
                continue
            if end not in (-1, piece.offset):  # the file was truncated
                if rest := _from(held, mask, start):
                    yield rest
                held, start = log_piece(b"", 0), 0
            end = piece.offset + len(piece)
            data = bytes(held) + bytes(piece)
            at, cut = end - len(data), mask.split_before_value(data)
            held = log_piece(data[cut:], at + cut)
            if shown := _from(log_piece(data[:cut], at), mask, start):
                yield shown
    if rest := _from(held, mask, start):
        yield rest


def _from(piece: LogPiece, mask: LogMask, start: int) -> LogPiece | None:
    """Returns the masked piece from byte `start` on, None if nothing of it is left."""
    skipped = min(len(piece), max(0, start - piece.offset))
    shown = mask.mask(piece)[skipped:]
    return log_piece(shown, piece.offset + skipped) if shown else None
