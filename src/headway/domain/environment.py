"""Versions of software environments: Python packages that are installed once and never change."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

FOLDER = "/environments"  # on machines: /environments/NAME/VERSION, read-only
MODULES = f"{FOLDER}/.modules"  # module files, one for each version
NO_ENVIRONMENT = "none"  # as a job's environment: the node's own Python, whatever the default
NAME_PATTERN = r"[a-z][a-z0-9_-]{0,30}"
LABEL_PATTERN = rf"{NAME_PATTERN}(@[1-9][0-9]{{0,8}})?"
PYTORCH = "pytorch"  # the environment that every cluster has
IMAGE_SOURCE = "node image"  # `source` of an environment that is the node image's own Python
FILE_SOURCE = "cluster file"  # `source` of an environment that the cluster file lists
_LABEL = re.compile(rf"({NAME_PATTERN})@([1-9][0-9]{{0,8}})")
_USER_OF_ADDRESS = re.compile(r"(https?|)://([^/\s@]+)@", re.IGNORECASE)  # takes linear time, whatever the text


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
    source: str  # what it was made from: "requirements.txt", "pyproject.toml", "uv.lock", FILE_SOURCE, IMAGE_SOURCE
    request: str  # request_digest() of what was asked for
    person: str
    at: float
    job_id: int  # the job that built it; 0 for IMAGE_SOURCE
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


def request_digest(text: str, pyproject: str = "") -> str:
    """Returns the sha256 of what an environment was asked to contain, before exact versions were chosen."""
    return hashlib.sha256(f"{text}\0{pyproject}".encode()).hexdigest()


def address_with_password(text: str) -> bool:
    """Returns whether the text has an address that contains a password or a token."""
    # Over HTTP a word without a colon is a token; over SSH it is a user.
    return any(http or ":" in user for http, user in _USER_OF_ADDRESS.findall(text))


def parse_label(label: str) -> tuple[str, int]:
    """Returns (name, number) of NAME@NUMBER. Raises ValueError for any other text."""
    match = _LABEL.fullmatch(label)
    if match is None:
        raise ValueError(label)
    return match[1], int(match[2])
