"""The Store: everything the server remembers, behind typed methods."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from headway.store.answers import AnswerStore
from headway.store.audit import AuditStore
from headway.store.clusters import ClusterStore
from headway.store.datasets import DatasetStore
from headway.store.engine import database_url, open_engine
from headway.store.happenings import HappeningStore
from headway.store.images import ImageStore
from headway.store.incidents import IncidentStore
from headway.store.jobs import JobStore
from headway.store.keeping import KeepStore
from headway.store.ledger import LedgerStore
from headway.store.notebooks import NotebookStore
from headway.store.operations import OperationStore
from headway.store.people import PeopleStore
from headway.store.prices import PriceStore
from headway.store.volumes import VolumeStore


class Store(
    PeopleStore,
    AuditStore,
    ClusterStore,
    OperationStore,
    JobStore,
    IncidentStore,
    ImageStore,
    AnswerStore,
    NotebookStore,
    HappeningStore,
    PriceStore,
    KeepStore,
    LedgerStore,
    DatasetStore,
    VolumeStore,
):
    """Open it with `open_store`; `close` it at the end."""

    async def close(self) -> None:
        await self.presence.close()
        await self._engine.dispose()


async def open_store(state_dir: Path, url: str = "", *, clock: Callable[[], float] = time.time) -> Store:
    """The store of a state folder (SQLite), or of a PostgreSQL URL, at the newest migration."""
    return Store(await open_engine(database_url(state_dir, url)), clock)
