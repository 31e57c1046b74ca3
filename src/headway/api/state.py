"""What every request has at hand: made once by the composition root."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.api.live import Live, Snapshot
from headway.api.work import Resolved, Work
from headway.domain.cluster import Cluster
from headway.domain.live import Check
from headway.errors import HeadwayError, NotFound
from headway.store import ClusterRow, Store
from headway.wire.schemas import Document

READ_TIMEOUT_S = 10.0
_FRESH_S = 0.4  # readings younger than this are not asked for again


@dataclass(frozen=True)
class Settings:
    """What is fixed for the life of the server."""

    state_dir: Path
    url: str = ""  # as people reach it, no slash at the end
    database: str = ""
    cookie: str = "headway_session"
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")  # () = any
    dataset_roots: tuple[Path, ...] = ()  # () = any folder but the system's


@dataclass
class AppState:
    store: Store
    work: Work
    live: Live
    settings: Settings
    clock: Callable[[], float] = time.time
    wake: asyncio.Event = field(default_factory=asyncio.Event)  # there is an operation to claim
    plans: dict[str, PlanKept] = field(default_factory=dict)
    inputs: dict[tuple[str, str], asyncio.Queue[bytes]] = field(default_factory=dict)  # of running commands
    commands: Counter[str] = field(default_factory=Counter)  # running on clusters, by person
    _resolved: dict[str, tuple[str, Cluster]] = field(default_factory=dict)
    _reading: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def row(self, name: str) -> ClusterRow:
        """The cluster's row; NotFound names those there are."""
        row = await self.store.cluster(name)
        if row is None:
            names = [c.name for c in await self.store.clusters()]
            raise NotFound(
                f"no cluster {name!r}", hint=f"there is {', '.join(names)}" if names else "headway apply FILE makes one"
            )
        return row

    async def cluster(self, name: str) -> tuple[ClusterRow, Cluster]:
        row = await self.row(name)
        return row, await self.resolved(row)

    async def resolved(self, row: ClusterRow) -> Cluster:
        """The row's document, resolved; remembered until it changes."""
        key = fingerprint(row.document)
        known = self._resolved.get(row.name)
        if known is None or known[0] != key:
            found = await self.resolve(Document.model_validate(row.document))
            known = self._resolved[row.name] = (key, found.cluster)
        return known[1]

    async def resolve(self, document: Document) -> Resolved:
        return await asyncio.to_thread(self.work.resolve, document)

    async def read(self, cluster: Cluster, *, max_age_s: float = _FRESH_S) -> Snapshot:
        """Reads the cluster unless its snapshot is young. A cluster that does not answer gives the last figures, marked
        stale."""
        async with self._reading.setdefault(cluster.name, asyncio.Lock()):
            known = self.live.snapshot(cluster.name)
            if known.as_of is not None and not known.stale and self.clock() - known.as_of < max_age_s:
                return known
            try:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    machines, reading = await asyncio.gather(self.work.machines(cluster), self.work.read(cluster))
            except (HeadwayError, TimeoutError, OSError) as error:
                self.live.fail(cluster.name, _why(error))
            else:
                known = self.live.snapshot(cluster.name)
                self.live.put(
                    Snapshot(
                        cluster.name,
                        reading.nodes,
                        reading.jobs,
                        machines,
                        known.checks,
                        {job.id: known.progress[job.id] for job in reading.jobs if job.id in known.progress},
                        as_of=self.clock(),
                    )
                )
            return self.live.snapshot(cluster.name)

    async def checks(self, cluster: Cluster) -> tuple[Check, ...]:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await self.work.checks(cluster)
        except (HeadwayError, TimeoutError, OSError) as error:
            return (Check("reachable", False, _why(error)),)

    async def forget(self, name: str) -> None:
        """The cluster is gone: drops everything remembered about it."""
        self.plans.pop(name, None)
        self._resolved.pop(name, None)
        await self.work.forget(name)
        self.live.forget(name)


@dataclass(frozen=True, slots=True)
class PlanKept:
    """A plan that was just shown: apply need not look at every machine again for it."""

    document: str  # fingerprint
    digest: str
    asks: int
    at: float


def fingerprint(value: Mapping[str, Any]) -> str:
    """The same for two documents that say the same."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _why(error: BaseException) -> str:
    if isinstance(error, HeadwayError):
        return error.message.splitlines()[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {READ_TIMEOUT_S:g} s"
    return str(error) or type(error).__name__
