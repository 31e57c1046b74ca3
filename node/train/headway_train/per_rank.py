"""Finds which entries of a training's state differ from rank to rank, by content and without torch.

torch.distributed.checkpoint assumes that a plain tensor or value is the same on all ranks, and saves one rank's copy. The
state of a random generator or the position in the data differs between ranks; such an entry is saved in one file per
rank, next to torch's files."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# Returns a tensor's content in pieces; None for anything but a tensor. Raises Divided.
Pieces = Callable[[Any], Iterable[bytes | memoryview] | None]


class Divided(Exception):
    """Raised for a tensor that is sharded over the ranks. torch itself saves all its parts."""


def file_of(rank: int) -> str:
    """Returns the name of the file with this rank's own entries, in torch's naming scheme."""
    return f"__{rank}_own.pt"


def mark(value: Any, pieces: Pieces) -> str:
    """Returns a hash that is the same for equal values in every process; "" if the value contains a sharded tensor."""
    try:
        return _mark(value, pieces).hex()
    except Divided:
        return ""


def _mark(value: Any, pieces: Pieces) -> bytes:
    digest = hashlib.blake2b(type(value).__name__.encode(), digest_size=16)
    if (parts := pieces(value)) is not None:
        pass
    elif isinstance(value, Mapping):  # independent of the order of insertion, as with sets
        parts = sorted(_mark(name, pieces) + _mark(item, pieces) for name, item in value.items())
    elif isinstance(value, (set, frozenset)):
        parts = sorted(_mark(item, pieces) for item in value)
    elif isinstance(value, (list, tuple)):
        parts = [_mark(item, pieces) for item in value]
    elif value is None or isinstance(value, (bool, int, float, complex, str)):
        parts = [repr(value).encode()]
    else:
        parts = [_pickled(value)]
    for part in parts:
        digest.update(part)
    return digest.digest()


def _pickled(value: Any) -> bytes:
    """Returns the pickled value; b"" if it can't be pickled, because the save then reports the error."""
    try:
        return pickle.dumps(value, protocol=4)
    except Exception:
        return b""


def differing(marks_by_rank: Sequence[Mapping[str, str]]) -> set[str]:
    """Returns the names of the entries that differ between the ranks that have them. `marks_by_rank`: each rank's marks
    by entry name."""
    seen: dict[str, set[str]] = {}
    for marks in marks_by_rank:
        for name, one in marks.items():
            seen.setdefault(name, set()).add(one)
    return {name for name, marks in seen.items() if len(marks) > 1 and "" not in marks}


def source(rank: int, ranks: int, written_by: int, names: Iterable[str]) -> tuple[str, bool]:
    """Returns (name of the file with this rank's own entries, "" if the checkpoint has none; whether it is another rank's
    file). `names`: the checkpoint's files. If the number of ranks has changed, all ranks use rank 0's file."""
    same = ranks == written_by
    name = file_of(rank if same else 0)
    return (name if name in set(names) else ""), not same
