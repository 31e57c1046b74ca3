"""Reads the scalars of TensorBoard event files, without TensorBoard.

The format is TensorFlow's (tensorflow/core/lib/io/record_writer, core/util/event.proto, core/framework/summary.proto): records
of an 8-byte length, a 4-byte checksum of it, a protobuf message and its checksum. Images, texts and histograms are skipped.
Checksums are not verified: the standard library has no CRC-32C, and a damaged length ends the file."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

NAME = "events.out.tfevents."  # in the name of each event file
MAX_RECORD = 1 << 30  # bytes; a longer one is a damaged length
_PART = 1 << 20  # bytes of a record that are read: scalars need less than a hundred
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE = 1, 2  # types of tensors
_SCALARS = ("", "scalars")  # plugins whose tensors are scalars; "" where the file said it before


class Scalar(NamedTuple):
    """One value. `at`: Unix seconds."""

    tag: str
    step: int
    at: float
    value: float


class Damaged(Exception):
    """The file can't be read from this place on."""


def read_scalars(path: str, offset: int) -> Iterator[tuple[int, list[Scalar]]]:
    """Yields (offset after the record, its scalars) of each complete record from an offset on. A record that is still being
    written is left. Raises OSError, and Damaged."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while offset + 12 <= size:
            file.seek(offset)
            (length,) = struct.unpack("<Q", file.read(12)[:8])
            if length > MAX_RECORD:
                raise Damaged(f"{path}: no record at byte {offset}")
            if offset + 16 + length > size:
                return
            offset += 16 + length
            try:
                yield offset, list(_scalars(file.read(length))) if length <= _PART else []
            except (struct.error, IndexError, UnicodeDecodeError, ValueError, TypeError):
                raise Damaged(f"{path}: the record before byte {offset} is no event") from None


def _scalars(event: bytes) -> Iterator[Scalar]:
    at, step, summaries = 0.0, 0, []
    for number, value in _fields(event):
        if number == 1:
            (at,) = struct.unpack("<d", value)
        elif number == 2:
            step = value
        elif number == 5:
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1:
                tag, scalar = _value(value)
                if scalar is not None:
                    yield Scalar(tag, step, at, scalar)


def _value(message: bytes) -> tuple[str, float | None]:
    """Returns (tag, number or None) of a summary's value."""
    tag, found, tensor, plugin = "", None, None, ""
    for number, value in _fields(message):
        if number == 1:
            tag = value.decode()
        elif number == 2:
            (found,) = struct.unpack("<f", value)
        elif number == 8:
            tensor = value
        elif number == 9:
            plugin = _plugin(value)
    if found is None and tensor is not None and plugin in _SCALARS:
        found = _single(tensor)
    return tag, found


def _plugin(metadata: bytes) -> str:
    """Returns the name of the plugin that shows a value."""
    for number, value in _fields(metadata):
        if number == 1:
            for inner, name in _fields(value):
                if inner == 1:
                    return str(name.decode())
    return ""


def _single(tensor: bytes) -> float | None:
    """Returns the number of a tensor that has one; None for others."""
    kind, content = 0, b""
    for number, value in _fields(tensor):
        if number == 1:
            kind = value
        elif number in (4, 5, 6):  # raw bytes, floats, doubles: all little-endian
            content += value
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(kind)
    if form is None or len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yields (number, value) of each field of a protobuf message: an integer, or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value - (1 << 64) if value >> 63 else value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(kind)
        if at + length > len(message):
            raise ValueError(length)
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns (integer, the place after it)."""
    found = shift = 0
    while shift < 64:
        byte = message[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
        shift += 7
    raise ValueError(found)
