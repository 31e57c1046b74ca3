"""What was submitted through Headway, and the pipelines it belongs to."""

from __future__ import annotations

import hashlib
import json
import secrets as random
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Row, insert, select

from headway.errors import NotFound
from headway.store.core.audit import audit_line
from headway.store.core.datasets import job_lines
from headway.store.core.idempotency_keys import KEPT_S
from headway.store.db import schema as t
from headway.store.db.rows import JobRecord, PipelineRow
from headway.store.db.transactions import Base, insert_into


class JobStore(Base):
    async def note_job(
        self,
        cluster: str,
        job_id: int,
        *,
        person: str,
        user: str,
        kind: str,
        request: Mapping[str, Any],
        facts: Mapping[str, Any],
        audit: Mapping[str, Any],
        address: str = "",
        parent: int = 0,
        pipeline: str = "",
        step: str = "",
        datasets: Collection[tuple[str, int]] = (),
    ) -> None:
        """Keeps where a job comes from, with its line of the audit trail: both or neither. `datasets`: (name, number) of the
        versions that it names."""
        async with self._write() as db:
            await db.execute(
                insert(t.jobs).values(
                    cluster=cluster,
                    job_id=job_id,
                    at=self._now(),
                    person=person,
                    user=user,
                    kind=kind,
                    parent=parent,
                    pipeline=pipeline,
                    step=step,
                    request=dict(request),
                    facts=dict(facts),
                )
            )
            if datasets:  # no line goes for it: another user's job may have this number (`job_record`)
                lines = job_lines(cluster, job_id, datasets)
                await db.execute(insert_into(db, t.job_datasets).values(lines).on_conflict_do_nothing())
            await db.execute(audit_line(self._now(), person, kind, cluster, audit, address=address))

    async def job_record(self, cluster: str, job_id: int, user: str | None = None) -> JobRecord | None:
        """The latest of this number and `user`; None for a job that did not come through Headway.

        The number is what sbatch said, and whoever has an sbatch of their own may have it say any: a record counts for the job
        only when it is of the job's own user. None asks for anybody's."""
        j = t.jobs
        mine = (j.c.cluster == cluster, j.c.job_id == job_id, *([j.c.user == user] if user is not None else ()))
        async with self._read() as db:
            row = (await db.execute(select(j).where(*mine).order_by(j.c.number.desc()).limit(1))).first()
        return _record(row) if row else None

    async def jobs_of_pipeline(self, pipeline: str) -> tuple[JobRecord, ...]:
        """In the order they were submitted: of a step that was run again, the last one counts."""
        query = select(t.jobs).where(t.jobs.c.pipeline == pipeline).order_by(t.jobs.c.number)
        async with self._read() as db:
            return tuple(_record(row) for row in await db.execute(query))

    async def save_pipeline(
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
        """`key`: who saves the same again with it within a day gets the first, and with another one a pipeline of its own:
        a request that was not carried out leaves its key to others."""
        p, now, number = t.pipelines, self._now(), random.token_hex(4)
        async with self._write() as db:
            if key:
                said = json.dumps([key, cluster, user, dict(document)], sort_keys=True)
                of_key = hashlib.sha256(said.encode()).hexdigest()[:24]
                known = (await db.execute(select(p).where(p.c.id == f"p-{of_key}"))).first()
                if known is not None and known.at > now - KEPT_S:
                    return PipelineRow(**known._mapping)
                number = number if known else of_key
            row = PipelineRow(f"p-{number}", cluster, name, person, user, now, workdir, dict(document))
            await db.execute(insert(p).values(**vars(row)))
        return row

    async def pipeline(self, cluster: str, pipeline: str) -> PipelineRow:
        """By its id, or the latest of its name. NotFound when there is none."""
        p = t.pipelines
        mine = select(p).where(p.c.cluster == cluster, (p.c.id == pipeline) | (p.c.name == pipeline))
        async with self._read() as db:
            row = (await db.execute(mine.order_by(p.c.at.desc()).limit(1))).first()
        if row is None:
            raise NotFound(f"{cluster} has no pipeline {pipeline!r}", hint="headway pipeline ls")
        return PipelineRow(**row._mapping)

    async def pipelines(self, cluster: str, *, limit: int = 50) -> tuple[PipelineRow, ...]:
        """The latest first."""
        p = t.pipelines
        query = select(p).where(p.c.cluster == cluster).order_by(p.c.at.desc()).limit(limit)
        async with self._read() as db:
            return tuple(PipelineRow(**row._mapping) for row in await db.execute(query))


def _record(row: Row[Any]) -> JobRecord:
    fields = dict(row._mapping)
    fields.pop("number")
    return JobRecord(**fields)
