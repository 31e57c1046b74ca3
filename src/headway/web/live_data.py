"""The interface through which pages read data. The server implements it; tests use a fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from starlette.requests import Request

from headway.domain.slurm.state import JobState
from headway.schemas.clusters import ClusterOut, StatusOut
from headway.schemas.incidents import IncidentOut
from headway.schemas.jobs import ProgressOut


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of a cluster's recent history: a node went down, a job was requeued, an apply ended."""

    at: float  # unix seconds
    text: str
    level: Literal["info", "warning", "error"] = "info"
    where: str = ""  # node name, "job 104", ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster's last reading. `jobs` are the running and pending ones, and recently ended ones if known. All
    viewers share one snapshot, and the values derived from it (`kept`)."""

    status: StatusOut
    jobs: tuple[JobState, ...] = ()
    happenings: tuple[Happening, ...] = ()  # newest first
    incidents: tuple[IncidentOut, ...] = ()  # newest first: all open ones, and the most recent others
    faults: int = 0  # the number of all incidents of the cluster
    progress: Mapping[int, ProgressOut] = field(default_factory=dict)  # job id -> its training progress
    kept: dict[Any, Any] = field(default_factory=dict, init=False, compare=False)


class Live(Protocol):
    """Provides data from memory, so that a page never waits for a machine."""

    @property
    def streams(self) -> asyncio.Semaphore:
        """Returns the semaphore that limits how many streams are updated at a time."""
        ...

    async def clusters(self) -> list[ClusterOut]: ...

    async def snapshot(self, name: str) -> Snapshot:
        """Returns the cluster's last reading. Raises NotFound for an unknown cluster."""
        ...

    def subscribe(self, name: str) -> AsyncIterator[None]:
        """Yields whenever `snapshot` may return something new; ends when the cluster is gone."""
        ...


class Viewer(Protocol):
    """The person who views the page."""

    @property
    def person(self) -> str: ...

    @property
    def role(self) -> str: ...


# Returns the person of a request's session; None (or NotSignedIn raised) if there is none.
Principal = Callable[[Request], Awaitable[Viewer | None]]
