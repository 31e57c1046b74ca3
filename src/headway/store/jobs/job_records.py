"""Jobs that were submitted through Headway: the request, the person who made it, and facts recorded at that time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Row, insert, select

from headway.store.access.audit import add_audit_line
from headway.store.clusters.versions import job_lines
from headway.store.db import cluster_schema as t
from headway.store.db.rows import JobRecord
from headway.store.db.transactions import StorePart, insert_into


class JobRecordStore(StorePart):
    """Stores the records of submitted jobs."""

    async def record(
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
        environments: Collection[tuple[str, int]] = (),
        unless_since: float | None = None,
    ) -> None:
        """Records the origin of a job and writes its audit line, both in one transaction. `datasets`, `environments`:
        (name, number) of the versions that the job uses. `unless_since`: does nothing if this person's job of that number
        and user was recorded at this time, in Unix seconds, or later. (Slurm's numbers can start again at 1.)"""
        j = t.jobs
        async with self._database.write() as db:
            if unless_since is not None:
                same = (j.c.cluster == cluster, j.c.job_id == job_id, j.c.user == user, j.c.person == person)
                if (await db.execute(select(j.c.number).where(*same, j.c.at >= unless_since).limit(1))).first():
                    return
            await db.execute(
                insert(t.jobs).values(
                    cluster=cluster,
                    job_id=job_id,
                    at=self._database.now(),
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
            for table, used in ((t.job_datasets, datasets), (t.job_environments, environments)):
                if used:  # existing rows are not deleted: another user's job may have this number (see `get`)
                    lines = job_lines(cluster, job_id, used)
                    await db.execute(insert_into(db, table).values(lines).on_conflict_do_nothing())
            await add_audit_line(db, self._database.now(), person, kind, cluster, audit, address=address)

    async def get(self, cluster: str, job_id: int, user: str | None = None) -> JobRecord | None:
        """Returns the latest record of this job number and `user`, or None if the job was not submitted through
        Headway. If `user` is None, records of all users count.

        The job number comes from sbatch, and a user can replace sbatch with a program that prints any number. So a
        record applies to a job only if it belongs to the job's user."""
        j = t.jobs
        mine = (j.c.cluster == cluster, j.c.job_id == job_id, *([j.c.user == user] if user is not None else ()))
        async with self._database.read() as db:
            row = (await db.execute(select(j).where(*mine).order_by(j.c.number.desc()).limit(1))).first()
        return _record(row) if row else None

    async def latest(self, cluster: str, job_ids: Collection[int]) -> dict[tuple[int, str], JobRecord]:
        """Returns the latest record of each of these jobs, by job number and user (see `get`)."""
        j = t.jobs
        query = (
            select(j).where(j.c.cluster == cluster, self._database.is_one_of(j.c.job_id, job_ids)).order_by(j.c.number)
        )
        async with self._database.read() as db:
            records = [_record(row) for row in await db.execute(query)]
        return {(record.job_id, record.user): record for record in records}

    async def of_pipeline(self, pipeline: str) -> tuple[JobRecord, ...]:
        """Returns the records in the order the jobs were submitted; if a step was run again, its last record counts."""
        query = select(t.jobs).where(t.jobs.c.pipeline == pipeline).order_by(t.jobs.c.number)
        async with self._database.read() as db:
            return tuple(_record(row) for row in await db.execute(query))

    async def children(self, cluster: str, job_id: int, *, limit: int = 50) -> list[int]:
        """Returns the newest jobs that repeat or continue this one."""
        j = t.jobs
        query = select(j.c.job_id).where(j.c.cluster == cluster, j.c.parent == job_id).order_by(j.c.number.desc())
        async with self._database.read() as db:
            return sorted({int(row.job_id) for row in await db.execute(query.limit(limit))})

    async def in_folder(self, cluster: str, folder: str, *, limit: int = 50) -> list[int]:
        """Returns the newest jobs that work in this folder."""
        j = t.jobs
        same = j.c.request["chdir"].as_string() == folder
        query = select(j.c.job_id).where(j.c.cluster == cluster, same).order_by(j.c.number.desc())
        async with self._database.read() as db:
            return sorted({int(row.job_id) for row in await db.execute(query.limit(limit))})


def _record(row: Row[Any]) -> JobRecord:
    fields = dict(row._mapping)
    fields.pop("number")
    return JobRecord(**fields)
