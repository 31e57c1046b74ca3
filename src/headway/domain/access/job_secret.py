"""Secrets of jobs: API keys and tokens that a person or a team stores for a cluster, and that jobs get as files. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NAME_PATTERN = r"[A-Za-z][A-Za-z0-9_.-]{0,63}"  # the same as in node/agent/jobs/secret_files.py
MOST_PER_JOB = 16
MOST_PER_OWNER = 100
MIN_BYTES = 8  # shorter values can't be masked in logs, where they occur by chance
MAX_BYTES = 16 * 1024


class OwnerKind(StrEnum):
    """Whose a secret is."""

    USER = "user"
    TEAM = "team"


@dataclass(frozen=True, slots=True)
class SecretOwner:
    """A Linux user or a team of a cluster."""

    kind: OwnerKind
    name: str

    def __str__(self) -> str:
        return self.name if self.kind is OwnerKind.USER else f"team {self.name}"


@dataclass(frozen=True, slots=True)
class SecretDelivery:
    """A start of a job that got secrets, as a head has recorded it. `id` is the same each time it is reported."""

    id: str
    at: float
    job: int
    user: str
    names: tuple[str, ...]


def value_fault(value: str) -> str:
    """Returns why a text can't be the value of a secret, "" if it can. The text does not contain the value."""
    size = len(value.encode())
    if size < MIN_BYTES:
        return f"the value has {size} bytes; a secret has at least {MIN_BYTES}, so that it can be masked in logs"
    if size > MAX_BYTES:
        return f"the value has {size} bytes; a secret has at most {MAX_BYTES}"
    return ""
