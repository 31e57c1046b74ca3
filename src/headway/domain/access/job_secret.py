"""Secrets of jobs: API keys and tokens that a person or a team stores for a cluster, and that jobs get as files. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
