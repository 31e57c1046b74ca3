"""Rows of services, as other packages use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """A service. `document`: the service file, and what its replicas need (bundle, git, mark)."""

    id: str
    cluster: str
    team: str
    name: str
    person: str
    user: str
    at: float
    document: Mapping[str, Any]
    version: int  # grows with each change of the document
    state: str  # running | stopped
    why: str
    least: int  # replicas
    most: int
    wanted: int
    low_since: float | None  # since when fewer than `wanted` replicas would suffice
    ended_at: float | None  # when its last replica had ended

    @property
    def account(self) -> str:
        """Returns the team, for the rights of its leads."""
        return self.team

    @property
    def proxy_name(self) -> str:
        """Returns TEAM:NAME, as the proxy and keys name the service."""
        return f"{self.team}:{self.name}"


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica of a service: a job that listens on `port` of its node. `job_id`: 0 until sbatch has answered."""

    service: str
    cluster: str
    number: int
    version: int
    port: int
    at: float
    since: float  # when it got its state
    state: str = "submitting"  # submitting | pending | starting | serving | unhealthy | draining | ending | ended
    job_id: int = 0
    node: str = ""
    why: str = ""
    failed: bool = False  # ended although no one asked for it
    healthy_at: float | None = None  # when its health check passed first
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceEventRow:
    """A decision about a service, in words."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class ServiceKeyRow:
    """A key that opens a service (TEAM:NAME). `hash`: SHA-256 in hexadecimal digits."""

    id: str
    cluster: str
    service: str
    label: str
    hash: str
    person: str
    at: float
    revoked_at: float | None
    per_minute: int | None = None  # requests; None: no limit
