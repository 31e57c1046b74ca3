"""Tells which part of a training's state differs from rank to rank, by content and without torch.

torch.distributed.checkpoint assumes that a plain tensor or value is the same on all ranks, and saves one rank's copy. The
state of a random generator or the position in the data differs; such an entry is saved in a file for each rank, beside
torch's files."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# A tensor's content as pieces of bytes; None for what is no tensor. Raises Divided.
Pieces = Callable[[Any], Iterable[bytes | memoryview] | None]


class Divided(Exception):
    """A tensor of which each rank holds a part: torch itself keeps all of them."""


def file_of(rank: int) -> str:
    """Named as torch names what a rank writes."""
    return f"__{rank}_own.pt"


def mark(value: Any, pieces: Pieces) -> str:
    """The same for values that are equal, in every process; "" where a tensor in it is divided among the ranks."""
    try:
        return _mark(value, pieces).hex()
    except Divided:
        return ""


def _mark(value: Any, pieces: Pieces) -> bytes:
    digest = hashlib.blake2b(type(value).__name__.encode(), digest_size=16)
    if (parts := pieces(value)) is not None:
        pass
    elif isinstance(value, Mapping):  # in whatever order they came in, as with sets
        parts = sorted(_mark(name, pieces) + _mark(one, pieces) for name, one in value.items())
    elif isinstance(value, (set, frozenset)):
        parts = sorted(_mark(one, pieces) for one in value)
    elif isinstance(value, (list, tuple)):
        parts = [_mark(one, pieces) for one in value]
    elif value is None or isinstance(value, (bool, int, float, complex, str)):
        parts = [repr(value).encode()]
    else:
        parts = [_pickled(value)]
    for part in parts:
        digest.update(part)
    return digest.digest()


def _pickled(value: Any) -> bytes:
    """What can't be pickled can't be saved either, and the save says so."""
    try:
        return pickle.dumps(value, protocol=4)
    except Exception:
        return b""


def differing(told: Sequence[Mapping[str, str]]) -> set[str]:
    """`told`: each rank's marks, by the entry's name. The entries that are not the same on all ranks that have them."""
    seen: dict[str, set[str]] = {}
    for marks in told:
        for name, one in marks.items():
            seen.setdefault(name, set()).add(one)
    return {name for name, marks in seen.items() if len(marks) > 1 and "" not in marks}


def source(rank: int, ranks: int, written_by: int, names: Iterable[str]) -> tuple[str, bool]:
    """(the file of a checkpoint that this rank takes its own entries from, "" for none; whether it is another's). `names`:
    the checkpoint's files. A run with another number of ranks has no own ones in it: all take rank 0's."""
    same = ranks == written_by
    name = file_of(rank if same else 0)
    return (name if name in set(names) else ""), not same
