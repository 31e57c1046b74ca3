"""Versions of Slurm and MUNGE that are known to be vulnerable, which is data: catalog/advisories.yaml."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Advisory:
    cve: tuple[str, ...]
    program: str  # "slurm" | "munge"
    fixed: tuple[_Version, ...]  # oldest first
    newest: str  # of them, as it is written
    lets: str
    source: str


@cache
def advisory_table() -> tuple[Advisory, ...]:
    import yaml

    rows = yaml.safe_load((files("headway.catalog") / "advisories.yaml").read_text())
    return tuple(
        Advisory(
            tuple(row["cve"]),
            row["program"],
            tuple(sorted(_numbers(text) for text in row["fixed"])),
            max(row["fixed"], key=_numbers),
            row["lets"],
            row["source"],
        )
        for row in rows
    )


def unfixed_advisories(program: str, version: str, amended: Collection[str] = ()) -> tuple[Advisory, ...]:
    """The advisories that a version is open to. `version` may be a package's: 1:24.11.5-4+deb13u1. `amended`: CVE ids that the
    package's own changelog names."""
    number = _numbers(version.partition(":")[2] or version)
    return tuple(
        row
        for row in advisory_table()
        if row.program == program and number and not _mended(number, row.fixed) and not set(row.cve) <= set(amended)
    )


def _mended(number: _Version, fixed: tuple[_Version, ...]) -> bool:
    same = [one for one in fixed if one[:2] == number[:2]]
    return number >= (same[0] if same else fixed[-1])


def _numbers(text: str) -> _Version:
    """ "24.11.5-4+deb13u1" -> (24, 11, 5)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
