"""Versions of Slurm, MUNGE, NVIDIA's driver and its container toolkit with known vulnerabilities; the data is in
catalog/advisories.yaml."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_Version = tuple[int, ...]
_SERIES = {"nvidia-driver": 1}  # how many numbers name a release series; 2 for other programs


@dataclass(frozen=True, slots=True)
class Advisory:
    """A published vulnerability and the versions that fix it."""

    cve: tuple[str, ...]
    program: str  # "slurm" | "munge" | "nvidia-driver" | "nvidia-container-toolkit"
    fixed: tuple[_Version, ...]  # oldest first
    newest: str  # the newest fixed version, as text
    lets: str
    source: str


@cache
def advisory_table() -> tuple[Advisory, ...]:
    """Returns the rows of catalog/advisories.yaml."""
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
    """Returns the advisories that apply to a version. `version` may be a package's: 1:24.11.5-4+deb13u1. `amended`: CVE
    ids that the changelog of the package lists as fixed."""
    number = _numbers(version.partition(":")[2] or version)
    return tuple(
        row
        for row in advisory_table()
        if row.program == program and number and not _is_fixed(row, number) and not set(row.cve) <= set(amended)
    )


def _is_fixed(row: Advisory, number: _Version) -> bool:
    length = _SERIES.get(row.program, 2)
    same = [version for version in row.fixed if version[:length] == number[:length]]
    return number >= (same[0] if same else row.fixed[-1])


def _numbers(text: str) -> _Version:
    """Returns the numbers of a version: "24.11.5-4+deb13u1" gives (24, 11, 5)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
