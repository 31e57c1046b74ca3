"""Batches: inference on the rows of a dataset."""

from __future__ import annotations

import hashlib
import json
import secrets as random
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Select, case, select, update

from headway.errors import NotFound
from headway.store.db import cluster_schema as t
from headway.store.db.rows import BatchKey, BatchRow
from headway.store.db.transactions import StorePart, insert_into


class BatchStore(StorePart):
    """Stores batches."""

    async def save(
        self,
        cluster: str,
        name: str,
        *,
        person: str,
        user: str,
        document: Mapping[str, Any],
        key: str = "",
        sent: Mapping[str, Any] | None = None,
    ) -> BatchRow:
        """Stores a new batch. The same request `sent` with the same idempotency `key` is stored once, although versions and
        prices in `document` may have changed between the two."""
        content = json.dumps([key, cluster, user, dict(sent or {})], sort_keys=True)
        number = hashlib.sha256(content.encode()).hexdigest()[:24] if key else random.token_hex(4)
        b, now = t.batches, self._database.now()
        row = BatchRow(f"b-{number}", cluster, name, person, user, now, dict(document), submitted_at=now)
        async with self._database.write() as db:
            await db.execute(insert_into(db, b).values(**asdict(row)).on_conflict_do_nothing())
            stored = (await db.execute(select(b).where(b.c.id == row.id))).one()
        return BatchRow(**stored._mapping)

    async def get(self, cluster: str, batch: str) -> BatchRow:
        """Returns the batch with this id; if there is none, the latest one of this name. Raises NotFound."""
        b = t.batches
        mine = select(b).where(b.c.cluster == cluster, (b.c.id == batch) | (b.c.name == batch))
        is_id = case((b.c.id == batch, 0), else_=1)  # people choose names, so a name never hides an id
        return await self._first(cluster, batch, mine.order_by(is_id, b.c.at.desc()))

    async def by_id(self, cluster: str, batch: str) -> BatchRow:
        """Returns the batch with this id. Raises NotFound."""
        b = t.batches
        return await self._first(cluster, batch, select(b).where(b.c.cluster == cluster, b.c.id == batch))

    async def _first(self, cluster: str, batch: str, query: Select[Any]) -> BatchRow:
        async with self._database.read() as db:
            row = (await db.execute(query.limit(1))).first()
        if row is None:
            raise NotFound(f"{cluster} has no batch {batch!r}", hint="headway batch ls")
        return BatchRow(**row._mapping)

    async def recent(self, cluster: str, *, limit: int = 50) -> tuple[BatchRow, ...]:
        """Returns the batches of a cluster, the latest first."""
        b = t.batches
        query = select(b).where(b.c.cluster == cluster).order_by(b.c.at.desc()).limit(limit)
        async with self._database.read() as db:
            return tuple(BatchRow(**row._mapping) for row in await db.execute(query))

    async def keys(self, cluster: str, *, limit: int) -> tuple[BatchKey, ...]:
        """Returns the batches of a cluster without their documents, the latest first."""
        b = t.batches
        query = select(b.c.id, b.c.at, b.c.person, b.c.name).where(b.c.cluster == cluster)
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(b.c.at.desc()).limit(limit))
            return tuple(BatchKey(**row._mapping) for row in rows)

    async def of_ids(self, cluster: str, ids: Collection[str]) -> tuple[BatchRow, ...]:
        """Returns the batches with these ids, the latest first."""
        b = t.batches
        query = select(b).where(b.c.cluster == cluster, b.c.id.in_(ids)).order_by(b.c.at.desc(), b.c.id.desc())
        async with self._database.read() as db:
            return tuple(BatchRow(**row._mapping) for row in await db.execute(query))

    async def of_job(self, cluster: str, job_id: int) -> tuple[BatchRow, ...]:
        """Returns the batches whose rows this job computes."""
        return await self._rows(t.batches.c.cluster == cluster, t.batches.c.job_id == job_id)

    async def of_dataset(self, cluster: str, label: str) -> tuple[BatchRow, ...]:
        """Returns the batches whose results are this dataset version, NAME@VERSION."""
        return await self._rows(t.batches.c.cluster == cluster, t.batches.c.dataset == label)

    async def _rows(self, *conditions: ColumnElement[bool]) -> tuple[BatchRow, ...]:
        async with self._database.read() as db:
            rows = await db.execute(select(t.batches).where(*conditions).order_by(t.batches.c.at))
            return tuple(BatchRow(**row._mapping) for row in rows)

    async def unfinished(self) -> tuple[BatchRow, ...]:
        """Returns the batches of all clusters that have not ended, the oldest first."""
        b = t.batches
        async with self._database.read() as db:
            rows = await db.execute(select(b).where(b.c.ended_at.is_(None)).order_by(b.c.at))
            return tuple(BatchRow(**row._mapping) for row in rows)

    async def change(self, batch: str, *, of_state: str, **values: Any) -> bool:
        """Changes fields of a batch that is in this state. Returns False if it is in another one by now."""
        b = t.batches
        wanted = update(b).where(b.c.id == batch, b.c.state == of_state).values(**values)
        async with self._database.write() as db:
            return (await db.execute(wanted)).rowcount > 0
