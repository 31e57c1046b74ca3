"""The Protocol of what pages read. The server implements it; tests use a fake."""

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
    """A cluster as last read. `jobs` are the running and the pending, and those that ended lately if known. All who look
    share one, and what was made of it: `kept`."""

    status: StatusOut
    jobs: tuple[JobState, ...] = ()
    happenings: tuple[Happening, ...] = ()  # newest first
    incidents: tuple[IncidentOut, ...] = ()  # newest first: all that are open, and the latest
    faults: int = 0  # how many incidents there ever were
    progress: Mapping[int, ProgressOut] = field(default_factory=dict)  # job -> its figures
    kept: dict[Any, Any] = field(default_factory=dict, init=False, compare=False)


class Live(Protocol):
    """Answers from memory, so that a page never waits on a machine."""

    @property
    def streams(self) -> asyncio.Semaphore:
        """How many streams are brought up to date at a time."""
        ...

    async def clusters(self) -> list[ClusterOut]: ...

    async def snapshot(self, name: str) -> Snapshot:
        """Raises NotFound for a name that is no cluster."""
        ...

    def subscribe(self, name: str) -> AsyncIterator[None]:
        """Yields whenever `snapshot` may answer something new; ends when the cluster is gone."""
        ...


class Viewer(Protocol):
    """Who looks at the page."""

    @property
    def person(self) -> str: ...

    @property
    def role(self) -> str: ...


# The person of a request's session, or None when nobody is signed in (NotSignedIn raised means the same).
Principal = Callable[[Request], Awaitable[Viewer | None]]
