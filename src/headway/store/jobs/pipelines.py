"""Pipelines that were submitted through Headway."""

from __future__ import annotations

import hashlib
import json
import secrets as random
from collections.abc import Mapping
from typing import Any

from sqlalchemy import case, insert, select, update

from headway.errors import NotFound
from headway.store.access.idempotency_keys import IDEMPOTENCY_KEPT_S
from headway.store.db import cluster_schema as t
from headway.store.db.rows import PipelineRow
from headway.store.db.transactions import StorePart


class PipelineStore(StorePart):
    """Stores pipelines."""

    async def save(
        self,
        cluster: str,
        name: str,
        *,
        person: str,
        user: str,
        workdir: str,
        document: Mapping[str, Any],
        key: str = "",
    ) -> PipelineRow:
        """Stores a pipeline. `key`: idempotency key; the same pipeline with the same key within a day returns the
        first one. A different pipeline with the same key gets its own row, because a request that was not carried out
        does not reserve its key."""
        p, now, number = t.pipelines, self._database.now(), random.token_hex(4)
        async with self._database.write() as db:
            if key:
                content = json.dumps([key, cluster, user, dict(document)], sort_keys=True)
                of_key = hashlib.sha256(content.encode()).hexdigest()[:24]
                known = (await db.execute(select(p).where(p.c.id == f"p-{of_key}"))).first()
                if known is not None and known.at > now - IDEMPOTENCY_KEPT_S:
                    return PipelineRow(**known._mapping)
                number = number if known else of_key
            row = PipelineRow(f"p-{number}", cluster, name, person, user, now, workdir, dict(document))
            await db.execute(insert(p).values(**vars(row)))
        return row

    async def save_results(self, pipeline: str, results: Mapping[str, Any], looked: Mapping[str, int]) -> None:
        """Adds results of steps to the pipeline's document, and which jobs' results were looked for."""
        p = t.pipelines
        async with self._database.write() as db:
            row = (await db.execute(select(p.c.document).where(p.c.id == pipeline).with_for_update())).first()
            if row is None:
                return
            document = dict(row.document)
            document["results"] = {**document.get("results", {}), **results}
            document["looked"] = {**document.get("looked", {}), **looked}
            await db.execute(update(p).where(p.c.id == pipeline).values(document=document))

    async def get(self, cluster: str, pipeline: str) -> PipelineRow:
        """Returns the pipeline with this id; if there is none, the latest one of this name. Raises NotFound."""
        p = t.pipelines
        mine = select(p).where(p.c.cluster == cluster, (p.c.id == pipeline) | (p.c.name == pipeline))
        is_id = case((p.c.id == pipeline, 0), else_=1)  # people choose names, so a name never hides an id
        async with self._database.read() as db:
            row = (await db.execute(mine.order_by(is_id, p.c.at.desc()).limit(1))).first()
        if row is None:
            raise NotFound(f"{cluster} has no pipeline {pipeline!r}", hint="headway pipeline ls")
        return PipelineRow(**row._mapping)

    async def recent(self, cluster: str, *, limit: int = 50) -> tuple[PipelineRow, ...]:
        """Returns the pipelines of a cluster, the latest first."""
        p = t.pipelines
        query = select(p).where(p.c.cluster == cluster).order_by(p.c.at.desc()).limit(limit)
        async with self._database.read() as db:
            return tuple(PipelineRow(**row._mapping) for row in await db.execute(query))
