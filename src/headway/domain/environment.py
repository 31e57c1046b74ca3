"""Versions of software environments: Python packages that are installed once and never change."""

from __future__ import annotations

import re
from dataclasses import dataclass

FOLDER = "/environments"  # on machines: /environments/NAME/VERSION, read-only
MODULES = f"{FOLDER}/.modules"  # module files, one for each version
NO_ENVIRONMENT = "none"  # as a job's environment: the node's own Python, whatever the default
NAME_PATTERN = r"[a-z][a-z0-9_-]{0,30}"
_LABEL = re.compile(rf"({NAME_PATTERN})@([1-9][0-9]{{0,8}})")


@dataclass(frozen=True, slots=True)
class EnvironmentVersion:
    """One version of an environment. `digest`: sha256 of its lock, the text that names every package with its hashes."""

    cluster: str
    name: str
    number: int
    digest: str
    python: str  # version of its Python: "3.13.5"
    packages: int
    bytes: int
    source: str  # what it was made from: "requirements.txt", "pyproject.toml", "uv.lock"
    person: str
    at: float
    job_id: int  # the job that built it
    removed_at: float | None = None
    removed_by: str = ""
    forced: bool = False  # removed although the lineage of jobs names it

    @property
    def label(self) -> str:
        """The version as people write it: NAME@NUMBER."""
        return f"{self.name}@{self.number}"

    @property
    def path(self) -> str:
        """The version's path on every machine."""
        return f"{FOLDER}/{self.name}/{self.number}"


def parse_label(label: str) -> tuple[str, int]:
    """Returns (name, number) of NAME@NUMBER. Raises ValueError for any other text."""
    match = _LABEL.fullmatch(label)
    if match is None:
        raise ValueError(label)
    return match[1], int(match[2])
