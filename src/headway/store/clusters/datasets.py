"""Versions of datasets, and which jobs' lineage names them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from headway.domain.dataset import DatasetVersion
from headway.errors import NotFound
from headway.store.db import schema as t
from headway.store.db.transactions import StorePart


class Datasets(StorePart):
    async def versions(self, cluster: str, name: str = "", *, removed: bool = False) -> tuple[DatasetVersion, ...]:
        """By name and number; those that were removed only when asked for."""
        d = t.datasets
        query = select(d).where(d.c.cluster == cluster).order_by(d.c.name, d.c.number)
        if name:
            query = query.where(d.c.name == name)
        if not removed:
            query = query.where(d.c.removed_at.is_(None))
        async with self._database.read() as db:
            return tuple(_version(row) for row in await db.execute(query))

    async def get(self, cluster: str, name: str, number: int) -> DatasetVersion:
        """NotFound when there was never one; it may have been removed."""
        d = t.datasets
        query = select(d).where(d.c.cluster == cluster, d.c.name == name, d.c.number == number)
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        if row is None:
            raise NotFound(f"{cluster} has no dataset {name}@{number}", hint="headway dataset list")
        return _version(row)

    async def names(self, cluster: str) -> tuple[str, ...]:
        """Of datasets that have a version."""
        d = t.datasets
        query = select(d.c.name).where(d.c.cluster == cluster, d.c.removed_at.is_(None)).distinct().order_by(d.c.name)
        async with self._database.read() as db:
            return tuple(row.name for row in await db.execute(query))

    async def next_number(self, cluster: str, name: str) -> int:
        """The number of a dataset's next version: none that was given here, or that a job's lineage names."""
        async with self._database.read() as db:
            last = 0
            for given in (t.datasets, t.job_datasets):
                query = select(func.max(given.c.number)).where(given.c.cluster == cluster, given.c.name == name)
                last = max(last, (await db.execute(query)).scalar() or 0)
            return last + 1

    async def add(self, version: DatasetVersion) -> None:
        async with self._database.write() as db:
            await db.execute(insert(t.datasets).values(**asdict(version)))

    async def record_verification(self, version: DatasetVersion, damage: str) -> None:
        """Every file was read again; `damage`: what was found, "" for nothing."""
        await self._update(version, checked_at=self._database.now(), damage=damage)

    async def record_removal(self, version: DatasetVersion, person: str, *, forced: bool) -> None:
        await self._update(version, removed_at=self._database.now(), removed_by=person, forced=forced)

    async def _update(self, version: DatasetVersion, **values: Any) -> None:
        d = t.datasets
        mine = (d.c.cluster == version.cluster, d.c.name == version.name, d.c.number == version.number)
        async with self._database.write() as db:
            await db.execute(update(d).where(*mine).values(**values))

    async def jobs_using(self, cluster: str, name: str, number: int, *, limit: int = 5) -> tuple[int, list[int]]:
        """(how many jobs name it, the latest of them)."""
        j = t.job_datasets
        mine = (j.c.cluster == cluster, j.c.name == name, j.c.number == number)
        async with self._database.read() as db:
            count = (await db.execute(select(func.count()).select_from(j).where(*mine))).scalar() or 0
            rows = await db.execute(select(j.c.job_id).where(*mine).order_by(j.c.job_id.desc()).limit(limit))
            return int(count), [row.job_id for row in rows]

    async def job_counts(self, cluster: str) -> dict[tuple[str, int], int]:
        """(name, number) -> how many jobs name the version."""
        j = t.job_datasets
        query = select(j.c.name, j.c.number, func.count().label("jobs")).where(j.c.cluster == cluster)
        async with self._database.read() as db:
            rows = await db.execute(query.group_by(j.c.name, j.c.number))
            return {(row.name, row.number): row.jobs for row in rows}


def job_lines(cluster: str, job_id: int, used: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Rows of job_datasets."""
    return [
        {"cluster": cluster, "name": name, "number": number, "job_id": job_id} for name, number in sorted(set(used))
    ]


def _version(row: Row[Any]) -> DatasetVersion:
    return DatasetVersion(**row._mapping)
