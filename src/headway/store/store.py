"""The Store: everything the server remembers, behind typed methods."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from headway.store.billing.ledger import LedgerStore
from headway.store.billing.prices import PriceStore
from headway.store.core.activity import HappeningStore
from headway.store.core.audit import AuditStore
from headway.store.core.cluster_records import KeepStore
from headway.store.core.clusters import ClusterStore
from headway.store.core.datasets import DatasetStore
from headway.store.core.idempotency_keys import AnswerStore
from headway.store.core.incidents import IncidentStore
from headway.store.core.jobs import JobStore
from headway.store.core.node_images import ImageStore
from headway.store.core.notebooks import NotebookStore
from headway.store.core.operations import OperationStore
from headway.store.core.people import PeopleStore
from headway.store.core.volume_speeds import VolumeStore
from headway.store.db.engine import database_url, open_engine


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
