"""Converts Slurm host lists (`lab-1-[1-4,7],lab-head`) to names and back. Any list of names survives the round trip;
zero padding is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

_TAIL = re.compile(r"^(.*?)(\d+)$")
_GROUP = re.compile(r"([^,\[\]]*)\[([^\]]*)\]([^,\[\]]*)|([^,\[\]]+)")


def compress(names: Iterable[str]) -> str:
    """Returns the shortest host list of the names, in natural order with one bracket per prefix; "" for no names."""
    numbered: dict[tuple[str, int], set[int]] = {}
    plain: dict[str, None] = {}
    for name in names:
        match = _TAIL.match(name)
        if match is None:
            plain[name] = None
            continue
        prefix, digits = match.groups()
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        numbered.setdefault((prefix, width), set()).add(int(digits))
    parts = list(plain)
    for prefix, width in sorted(numbered, key=lambda key: (natural_key(key[0]), key[1])):
        ranges = list(_ranges(sorted(numbered[prefix, width]), width))
        single = len(ranges) == 1 and "-" not in ranges[0]
        parts.append(f"{prefix}{ranges[0]}" if single else f"{prefix}[{','.join(ranges)}]")
    return ",".join(parts)


def compress_numbers(numbers: Iterable[int]) -> str:
    """Returns the numbers as ranges: [3, 7, 8, 9] gives "3,7-9"; "" for no numbers."""
    found = sorted(set(numbers))
    return ",".join(_ranges(found, 0)) if found else ""


def expand(text: str, most: int | None = None) -> list[str]:
    """Returns the names of a host list: `a[1-3],b` gives ["a1", "a2", "a3", "b"].

    Raises ValueError if the text is not a host list or names more than `most` hosts."""
    names = list(islice(_expanded(text), None if most is None else most + 1))
    if most is not None and len(names) > most:
        raise ValueError(f"more than {most} hosts: {text[:80]!r}")
    return names


def _expanded(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _GROUP.match(text, position)
        if match is None:
            raise ValueError(f"not a host list: {text!r}")
        prefix, body, suffix, name = match.groups()
        if name is not None:
            yield name
        else:
            yield from (f"{prefix}{number}{suffix}" for number in _numbers(body, text))
        position = match.end()
        if position < len(text):
            if text[position] != ",":
                raise ValueError(f"not a host list: {text!r}")
            position += 1


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Returns a sort key that places lab-1-2 before lab-1-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part)


def _ranges(numbers: list[int], width: int) -> Iterator[str]:
    start = previous = numbers[0]
    for number in [*numbers[1:], -1]:
        if number == previous + 1:
            previous = number
            continue
        yield f"{start:0{width}d}" if start == previous else f"{start:0{width}d}-{previous:0{width}d}"
        start = previous = number


def _numbers(body: str, text: str) -> Iterator[str]:
    for part in body.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"not a host list: {text!r}")
        width = len(first) if first.startswith("0") else 0
        for number in range(int(first), int(last if dash else first) + 1):
            yield f"{number:0{width}d}"
